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

const usage = `demo is the product tour. It builds a small cluster from network namespaces, runs nftproxy on
each node, and shows with real connections what it does. It exits with an error if a check fails.
It needs root and removes everything that it created, also when interrupted.

Flags:
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run runs the command and returns its exit code.
func run(args []string, stdout, stderr io.Writer) int {
	err := play(args, stdout)
	if err == nil || errors.Is(err, pflag.ErrHelp) {
		return 0
	}
	fmt.Fprintf(stderr, "demo: %v\n", err)
	switch {
	case errors.Is(err, errUsage):
		return 2
	case errors.Is(err, errInterrupted):
		return 130 // a shell's exit code for a process that SIGINT ended
	}
	return 1
}

var errUsage = errors.New("see demo --help")

// play plays the tour as the arguments say. The error is pflag.ErrHelp if it
// printed help instead.
func play(args []string, stdout io.Writer) error {
	flags := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	flags.Usage = func() { fmt.Fprintln(stdout, usage+flags.FlagUsagesWrapped(100)) }
	kubeProxy := flags.String("kube-proxy", "bin/kube-proxy", "The kube-proxy `PROGRAM` that the nodes run.")
	keep := flags.Bool("keep", false, "Keep the cluster running after the tour, until Ctrl-C.")
	name := flags.String("name", "demo", "Prefix `NAME` of the namespaces (NAME.client, NAME.node1). "+
		"Tours with different names can run at the same time.")
	switch err := flags.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		return err
	case err != nil:
		return fmt.Errorf("%w; %w", err, errUsage)
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q: demo takes only flags; %w", flags.Arg(0), errUsage)
	}
	if err := checkRequirements(os.Geteuid(), *kubeProxy); err != nil {
		return err
	}
	// Signals are caught until the process ends, because a second Ctrl-C must
	// not interrupt the cleanup. With SIGPIPE caught, writing to a closed pipe
	// returns an error.
	interrupt, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	t := &tour{report: report{w: stdout}, cluster: &cluster{name: *name, kubeProxy: *kubeProxy}, started: time.Now()}
	return t.run(interrupt, *keep)
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
