// Package benchmark is what the commands scale and dataplane have in common: how they run, and the files that they write.
package benchmark

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/pflag"
)

// The exit codes of commands.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // as shells have it for a process that SIGINT ended
)

// Run is what a command does. A context that ends is an interruption; it cleans up all the same.
type Run func(ctx context.Context, stdout, progress io.Writer) error

// Main runs the command of that name and returns its exit code. parse reads the command line; its error is pflag.ErrHelp if help was asked for and printed.
func Main(name string, parse func(args []string, help io.Writer) (Run, error)) int {
	run, err := parse(os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return exitOK
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n%s --help explains the flags.\n", name, err, name)
		return exitUsage
	}
	// Signals are caught until the end: a second one must not keep the first one from cleaning up.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err = run(ctx, os.Stdout, os.Stderr)
	switch {
	case err != nil && ctx.Err() != nil:
		fmt.Fprintf(os.Stderr, "%s: interrupted: %v\n", name, err) // tells also of what could not be cleaned up
		return exitInterrupted
	case err != nil:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return exitFailed
	}
	return exitOK
}
