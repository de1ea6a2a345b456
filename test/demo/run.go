package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nftproxy/nftproxy/test/demo/page"
	"github.com/nftproxy/nftproxy/test/demo/stage"
	"github.com/nftproxy/nftproxy/test/demo/tour"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // as shells have it for a process that SIGINT ended
)

// run runs the command with these arguments and returns its exit code.
func run(args []string, stdout *os.File, stderr io.Writer) int {
	f := newFlags()
	if err := f.parse(args); err != nil {
		fmt.Fprintf(stderr, "demo: %v\ndemo --help explains the flags.\n", err)
		return exitUsage
	}
	if f.help {
		f.printUsage(stdout)
		return exitOK
	}
	// Signals are caught until the end: a second Ctrl-C must not keep the first one from cleaning up. SIGPIPE too: where
	// nobody reads any more, writing returns an error instead.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	err := present(ctx, f, page.New(stdout, page.WantsColour(stdout)))
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(stderr, "demo: interrupted; everything is cleaned up")
		return exitInterrupted
	}
	fmt.Fprintf(stderr, "demo: %v\n", err)
	return exitFailed
}

// errInterrupted says that a signal ended the tour before its end.
var errInterrupted = errors.New("interrupted")

// present gives the tour on a cluster of its own.
func present(ctx context.Context, f *flags, to *page.Page) (err error) {
	programs, err := findPrograms(os.Geteuid(), f.kubeProxy)
	if err != nil {
		return err
	}
	samples, err := manifests()
	if err != nil {
		return err
	}
	to.Title("nftproxy: the tour")
	to.Text("A small cluster is laid out on this machine, with the real kube-proxy on its nodes. What you see below is measured " +
		"on it while you read, and checked: an \"ok\" says that it is as it should be.")
	started := time.Now()
	on, err := stage.Open(ctx, stage.Config{Name: f.name, KubeProxy: programs.kubeProxy, Manifests: samples})
	if err != nil {
		return orInterrupted(ctx, err)
	}
	defer func() {
		if closeErr := on.Close(); closeErr != nil {
			err = fmt.Errorf("clean up: %w", closeErr)
		}
	}()
	summary, err := tour.Run(ctx, to, on, programs.nft)
	if ctx.Err() != nil {
		return errInterrupted
	}
	err = conclude(to, summary, err, time.Since(started))
	if f.keep {
		tour.LookAround(to, on)
		<-ctx.Done()
	}
	return err
}

// orInterrupted returns err, or that the tour was interrupted, if so: what fails then fails because of that.
func orInterrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// conclude shows what came of the tour, which err ended before its time. It returns an error if that is not what it should be.
func conclude(to *page.Page, s tour.Summary, err error, took time.Duration) error {
	to.Scene("In short")
	if err != nil {
		to.Result(page.Wrong, "the tour could not go on: %v", err)
	}
	for _, failure := range s.Failures {
		to.Result(page.Wrong, "%s", failure)
	}
	to.Result(page.MarkOf(len(s.Failures) == 0), "%d of %d checks are as they should be, after %d connections in %.1f seconds.",
		s.Checks-len(s.Failures), s.Checks, s.Connections, took.Seconds())
	switch {
	case err != nil:
		return fmt.Errorf("the tour could not go on: %w", err)
	case to.Err() != nil:
		return fmt.Errorf("write the tour: %w", to.Err())
	case len(s.Failures) > 0:
		return fmt.Errorf("%d of %d checks failed", len(s.Failures), s.Checks)
	}
	return nil
}
