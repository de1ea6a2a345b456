// Command demo is the product tour. It builds a small cluster from network
// namespaces, runs a kube-proxy on each node, and shows with real connections
// what the proxies do. It exits with an error if one of its checks fails. It
// needs root and removes everything that it created.
//
// Type cluster owns the namespaces and the processes. Type tour shows the
// scenes on the cluster. Type report prints them and counts the checks. The
// expected results are written out in the scenes. They are not derived from the
// manifests, which would need a second implementation of the proxy.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/pflag"
)

const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // a shell's exit code for a process that SIGINT ended
)

const usage = `demo is the product tour. It builds a small cluster from network namespaces, runs a kube-proxy
on each node, and shows with real connections what the proxies do. It exits with an error if one of
its checks fails. It needs root and removes everything that it created, also when interrupted.

Usage:
  demo --kube-proxy PROGRAM [--keep]

Flags:
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// options are the values of the flags.
type options struct {
	kubeProxy, name string
	keep            bool
}

// run runs the command and returns its exit code.
func run(args []string, stdout, stderr io.Writer) int {
	var o options
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(stdout, usage, flags.FlagUsagesWrapped(100)) }
	flags.StringVar(&o.kubeProxy, "kube-proxy", "bin/kube-proxy", "The kube-proxy `PROGRAM` that the nodes run.")
	flags.BoolVar(&o.keep, "keep", false, "Keep the cluster running after the tour, until Ctrl-C.")
	flags.StringVar(&o.name, "name", "demo", "Prefix `NAME` of the namespaces (NAME.client, NAME.node1). "+
		"Tours with different names can run at the same time.")
	err := flags.Parse(args)
	if errors.Is(err, pflag.ErrHelp) {
		return exitOK
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q: demo takes only flags", flags.Arg(0))
	}
	if err != nil {
		fmt.Fprintf(stderr, "demo: %v\n", err)
		return exitUsage
	}

	// Signals are caught until the end, because a second Ctrl-C must not
	// interrupt the cleanup. SIGPIPE is caught so that writing to a closed pipe
	// returns an error.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	switch err := o.show(ctx, stdout); {
	case err == nil:
		return exitOK
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(stderr, "demo: interrupted; everything is cleaned up")
		return exitInterrupted
	default:
		fmt.Fprintf(stderr, "demo: %v\n", err)
		return exitFailed
	}
}

// errInterrupted is returned when a signal ended the tour.
var errInterrupted = errors.New("interrupted")

// show creates the cluster, runs the tour and removes the cluster.
func (o options) show(interrupt context.Context, out io.Writer) (err error) {
	nft, err := o.findPrograms(os.Geteuid())
	if err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(interrupt)
	defer fail(nil)
	t := &tour{
		report: report{w: out}, started: time.Now(), nft: nft,
		cluster: &cluster{name: o.name, kubeProxy: o.kubeProxy, fail: fail},
	}
	t.print("%s", introduction)
	defer func() {
		if closeErr := t.cluster.close(); closeErr != nil {
			err = fmt.Errorf("clean up: %w", closeErr)
		}
	}()
	if err := t.cluster.open(ctx); err != nil {
		if interrupt.Err() != nil {
			return errInterrupted
		}
		return err
	}
	err = t.run(ctx)
	if interrupt.Err() != nil {
		return errInterrupted
	}
	err = t.summarize(err)
	if o.keep {
		t.showKept()
		<-interrupt.Done()
	}
	return err
}

// findPrograms makes the path of kube-proxy absolute and returns that of nft.
func (o *options) findPrograms(euid int) (nft string, err error) {
	if euid != 0 {
		return "", errors.New("creating network namespaces requires root: run sudo make demo")
	}
	found, err := exec.LookPath(o.kubeProxy)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return "", fmt.Errorf("kube-proxy not found (%w): build it with make build, or use --kube-proxy PROGRAM", err)
	}
	if o.kubeProxy, err = filepath.Abs(found); err != nil {
		return "", err
	}
	// A shell that became root without a login may lack root's PATH.
	for _, name := range []string{"nft", "/usr/sbin/nft", "/sbin/nft"} {
		if nft, err = exec.LookPath(name); err == nil {
			return nft, nil
		}
	}
	return "", fmt.Errorf("the demo lists rules with nft, which is not installed (%w): run apt-get install nftables", err)
}
