// Command demo is the product tour. It builds a small cluster from network
// namespaces, runs nftproxy on each node, and checks with real connections
// what the proxies do. The script tour.txt has the texts and the expected
// results.
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

const usage = `demo is the product tour. It builds a small cluster from network namespaces, runs nftproxy on
each node, and shows with real connections what it does. It exits with an error if a check fails.
It needs root and removes everything that it created, also when interrupted.

Flags:
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run runs the command and returns its exit code.
func run(args []string, stdout, stderr io.Writer) int {
	code, err := play(args, stdout)
	if err != nil {
		fmt.Fprintf(stderr, "demo: %v\n", err)
	}
	return code
}

func play(args []string, stdout io.Writer) (code int, err error) {
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	flags.Usage = func() { fmt.Fprintln(stdout, usage+flags.FlagUsagesWrapped(100)) }
	kubeProxy := flags.String("kube-proxy", "bin/kube-proxy", "The kube-proxy `PROGRAM` that the nodes run.")
	keep := flags.Bool("keep", false, "Keep the cluster running after the tour, until Ctrl-C.")
	name := flags.String("name", "demo", "Prefix `NAME` of the namespaces (NAME.client, NAME.node1). "+
		"Tours with different names can run at the same time.")
	err = flags.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return exitOK, nil
	case err != nil:
		return exitUsage, fmt.Errorf("%w; see demo --help", err)
	case flags.NArg() > 0:
		return exitUsage, fmt.Errorf("unexpected argument %q: demo takes only flags; see demo --help", flags.Arg(0))
	}
	if err := checkRequirements(os.Geteuid(), *kubeProxy); err != nil {
		return exitFailed, err
	}
	// Signals are caught until the process ends, because a second Ctrl-C must
	// not interrupt the cleanup. With SIGPIPE caught, writing to a closed pipe
	// returns an error.
	interrupt, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	t := &tour{report: report{w: stdout}, cluster: &cluster{name: *name, kubeProxy: *kubeProxy}, started: time.Now()}
	switch err := t.run(interrupt, *keep); {
	case err == nil:
		return exitOK, nil
	case errors.Is(err, errInterrupted):
		return exitInterrupted, err
	default:
		return exitFailed, err
	}
}

// checkRequirements returns an error with advice if the demo cannot run.
func checkRequirements(euid int, kubeProxy string) error {
	program, proxyErr := exec.LookPath(kubeProxy)
	folder, _ := filepath.Abs(filepath.Dir(program))                   // it also has the program nftproxy
	os.Setenv("PATH", folder+":"+os.Getenv("PATH")+":/usr/sbin:/sbin") // su does not always add them
	_, nftErr := exec.LookPath("nft")
	switch {
	case euid != 0:
		return errors.New("creating network namespaces requires root: run sudo make demo")
	case proxyErr != nil:
		return fmt.Errorf("kube-proxy not found (%w): build it with make build, or use --kube-proxy PROGRAM", proxyErr)
	case nftErr != nil:
		return fmt.Errorf("nft, which lists the rules, not found (%w): run apt-get install nftables", nftErr)
	}
	return nil
}
