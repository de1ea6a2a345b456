package report

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

// Benchmark is a command that measures something.
type Benchmark interface {
	// AddFlags adds the flags of the benchmark.
	AddFlags(*pflag.FlagSet)
	// Measure validates the flags and adds figures to the report. If ctx ends
	// it cleans up and returns an error.
	Measure(ctx context.Context, r *Report) error
}

// Main runs a benchmark with the command line of the process, and exits.
func Main(name, about string, b Benchmark) {
	// Signals are caught until the end: a second one must not interrupt the
	// cleanup after the first one.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	_, err := Run(ctx, name, about, b, os.Args[1:], os.Stdout)
	switch {
	case err == nil || errors.Is(err, pflag.ErrHelp):
	case ctx.Err() != nil:
		fmt.Fprintf(os.Stderr, "%s: interrupted: %v\n", name, err)
		os.Exit(130) // as shells do for SIGINT
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Run runs a benchmark and prints its tables, also the incomplete tables of one
// that fails. The error is pflag.ErrHelp if it printed help instead.
func Run(ctx context.Context, name, about string, b Benchmark, args []string, stdout io.Writer) (*Report, error) {
	r, err := newReport(name, args)
	if err != nil {
		return nil, err
	}
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetOutput(stdout)
	flags.Usage = func() {
		fmt.Fprintf(stdout, "%s\n\nUsage:\n  %s [flags]\n\nFlags:\n%s", about, name, flags.FlagUsagesWrapped(110))
	}
	b.AddFlags(flags)
	flags.StringVar(&r.folder, "output", "", "`FOLDER` for tables, JSON and plots, also of a run that fails.")
	publish := flags.String("publish", "", "Another `FOLDER` for them, if the run succeeds.")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	err = b.Measure(ctx, r)
	if len(r.Tables) > 0 {
		fmt.Fprint(stdout, r)
		err = errors.Join(err, r.Save())
	}
	if err == nil {
		err = r.write(*publish)
	}
	return r, err
}
