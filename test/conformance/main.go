package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
)

// options are the flags of the command.
type options struct {
	proxy, mode, args, junit string
	only                     *regexp.Regexp
	seeds, parallel          int
}

func main() {
	o := options{only: new(regexp.Regexp)}
	flag.StringVar(&o.proxy, "proxy", "", "the program under test")
	flag.StringVar(&o.mode, "mode", "nftables", "its --proxy-mode")
	flag.StringVar(&o.args, "args", "", "further arguments of the program, separated by spaces")
	flag.StringVar(&o.junit, "junit", "", "a file for the results in JUnit XML")
	flag.TextVar(o.only, "run", regexp.MustCompile(""), "a regular expression of features and tests; others do not run")
	flag.IntVar(&o.seeds, "seeds", 3, "number of random clusters")
	flag.IntVar(&o.parallel, "parallel", 3, "number of tests at a time, each with an API server")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// run runs all suites and reports their results. If ctx ends, it reports the
// results of the tests that have ended.
func run(ctx context.Context, o options) (err error) {
	if o.proxy == "" {
		return errors.New("--proxy is required")
	}
	if o.proxy, err = filepath.Abs(o.proxy); err != nil {
		return err
	}
	r := report{program: o.proxy, mode: o.mode}
	for _, s := range suites() {
		if ctx.Err() != nil {
			break
		}
		results, notes, broken := s.run(ctx, o)
		r.results, r.notes, err = append(r.results, results...), append(r.notes, notes...), errors.Join(err, broken)
	}
	if err == nil && ctx.Err() == nil && len(r.results) == 0 {
		return fmt.Errorf("no case matches --run=%v", o.only)
	}
	r.print(os.Stdout)
	if o.junit != "" {
		err = errors.Join(err, r.writeJUnit(o.junit))
	}
	if ctx.Err() != nil {
		err = errors.Join(err, errors.New("interrupted: the results are incomplete"))
	}
	if n := r.counts("")[failed]; n > 0 {
		err = errors.Join(err, fmt.Errorf("%d cases failed", n))
	}
	return err
}
