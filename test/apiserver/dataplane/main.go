package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/test/apiserver/dataplane/result"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// The exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // as shells have it for a process that SIGINT ended
)

// run runs the command with these arguments and returns its exit code.
func run(args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(args, stdout)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(stderr, "dataplane: %v\ndataplane --help explains the flags.\n", err)
		return exitUsage
	}
	o.progress = stderr
	// Signals are caught until the end: a second one must not keep the first one from cleaning up.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err = o.run(ctx, stdout)
	switch {
	case err != nil && ctx.Err() != nil:
		fmt.Fprintf(stderr, "dataplane: interrupted: %v\n", err) // tells also of what could not be cleaned up
		return exitInterrupted
	case err != nil:
		fmt.Fprintf(stderr, "dataplane: %v\n", err)
		return exitFailed
	}
	return exitOK
}

// run measures, or reads what was measured, and shows it.
func (o *options) run(ctx context.Context, stdout io.Writer) error {
	var r *result.Result
	var err error
	if o.from != "" {
		r, err = result.Read(o.from)
	} else {
		r, err = o.measure(ctx)
	}
	if err != nil {
		return err
	}
	folders := []string{o.output}
	if o.publish != "" {
		folders = append(folders, o.publish)
	}
	for _, folder := range folders {
		if err := r.WriteAll(folder); err != nil {
			return err
		}
	}
	return r.Table(stdout)
}
