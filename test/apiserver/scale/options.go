package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/test/apiserver/benchmark"
	"github.com/nftproxy/nftproxy/test/apiserver/scale/stage"
)

// options say what is measured.
type options struct {
	sizes         []size
	programs      benchmark.Programs
	output        string // folder
	publish       string // another folder, "" for none
	from          string // file of an earlier result, "" to measure
	starts        int
	changes       int
	budget        time.Duration
	calm          time.Duration
	rest          time.Duration
	churnServices int
	churnRate     int
	churnTime     time.Duration
	profile       bool
	command       string // that was given

	progress io.Writer
}

// size is a size of the cluster, and the proxies to measure at it.
type size struct {
	services, endpoints int
	proxies             []string
}

// parseOptions reads the command line. The error is pflag.ErrHelp if help is asked for, which is printed then.
func parseOptions(args []string, help io.Writer) (*options, error) {
	o := &options{command: strings.Join(append([]string{"scale"}, args...), " ")}
	set := pflag.NewFlagSet("scale", pflag.ContinueOnError)
	set.SortFlags = false
	set.SetOutput(help)
	set.Usage = func() { fmt.Fprint(help, usage, set.FlagUsagesWrapped(110)) }
	services := set.IntSlice("services", []int{100, 1000, 5000, 10_000}, "Numbers of Services.")
	endpoints := set.Int("endpoints", 10, "Endpoints of each Service.")
	alone := set.StringSlice("alone", []string{"45000x6"}, "Sizes to measure nftproxy alone at, `SERVICESxENDPOINTS`.")
	proxies := set.StringSlice("proxies", []string{benchmark.Upstream, benchmark.Product}, "The proxies to measure.")
	o.programs.AddFlags(set)
	set.StringVar(&o.output, "output", ".cache/bench/scale-"+time.Now().Format("2006-01-02"), "`FOLDER` for the table, JSON and plots.")
	set.StringVar(&o.publish, "publish", "", "`FOLDER` to write JSON and plots to in addition.")
	set.StringVar(&o.from, "from", "", "Show the result in this `FILE`, rather than measure.")
	set.IntVar(&o.starts, "starts", 3, "Cold starts and restarts of each proxy.")
	set.IntVar(&o.changes, "changes", 50, "Changes of each kind.")
	set.DurationVar(&o.budget, "budget", 3*time.Minute,
		"Time after which starts and changes are not repeated any more, once there are 1 and 10 of them.")
	set.DurationVar(&o.calm, "calm", 30*time.Second, "The longest time to wait before a start for the machine to be idle.")
	set.DurationVar(&o.rest, "rest", 3*time.Second, "How long work counts that a proxy does after a start, and how long it is watched doing nothing.")
	set.IntVar(&o.churnServices, "churn-services", 10_000, "Number of Services at which there is churn; 0 for none.")
	set.IntVar(&o.churnRate, "churn-rate", 100, "Changes a second of the churn.")
	set.DurationVar(&o.churnTime, "churn-time", time.Minute, "How long the churn lasts.")
	set.BoolVar(&o.profile, "profile", false, "Keep CPU and heap profiles of nftproxy in the output folder.")
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if set.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	for _, n := range *services {
		o.sizes = append(o.sizes, size{n, *endpoints, *proxies})
	}
	for _, text := range *alone {
		one, err := parseSize(text)
		if err != nil {
			return nil, err
		}
		o.sizes = append(o.sizes, one)
	}
	return o, o.check()
}

const usage = `scale measures kube-proxy and nftproxy side by side, on a real API server: starts, changes, bursts and churn.
It needs root, cgroup v2 and a kernel with syscall tracepoints, and cleans up behind itself, also when it is interrupted.

Usage:
  scale [flags]

Flags:
`

// parseSize reads SERVICESxENDPOINTS.
func parseSize(text string) (size, error) {
	services, endpoints, found := strings.Cut(text, "x")
	s, errS := strconv.Atoi(services)
	e, errE := strconv.Atoi(endpoints)
	if !found || errS != nil || errE != nil {
		return size{}, fmt.Errorf("size %q: want SERVICESxENDPOINTS", text)
	}
	return size{s, e, []string{benchmark.Product}}, nil
}

func (o *options) check() error {
	for _, s := range o.sizes {
		switch {
		case s.services < 1 || s.services > stage.MaxServices:
			return fmt.Errorf("%d Services: want 1 to %d", s.services, stage.MaxServices)
		case s.endpoints < 2 || s.endpoints > 60:
			return fmt.Errorf("%d endpoints: want 2 to 60", s.endpoints)
		}
		for _, proxy := range s.proxies {
			if proxy != benchmark.Upstream && proxy != benchmark.Product {
				return fmt.Errorf("proxy %q: want %s or %s", proxy, benchmark.Upstream, benchmark.Product)
			}
		}
	}
	if o.starts < 1 || o.changes < 1 || o.churnRate < 1 || o.churnTime <= 0 || o.rest <= 0 {
		return errors.New("starts, changes, churn rate, churn time and rest: want more than 0")
	}
	if err := o.programs.MakeAbsolute(); err != nil {
		return err
	}
	slices.SortStableFunc(o.sizes, func(a, b size) int {
		if a.endpoints != b.endpoints {
			return 0
		}
		return a.services - b.services
	})
	return nil
}

// proxies are those that are measured at any size.
func (o *options) proxies() (all []string) {
	for _, s := range o.sizes {
		all = append(all, s.proxies...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// repeat calls f up to n times, but not again after the budget is used up once there are as many as needed.
func (o *options) repeat(n, needed int, f func(i int) error) error {
	began := time.Now()
	for i := range n {
		if i >= needed && time.Since(began) > o.budget {
			break
		}
		if err := f(i); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) resultFile() string { return filepath.Join(o.output, "scale.json") }

// say tells of the progress.
func (o *options) say(format string, args ...any) {
	fmt.Fprintf(o.progress, time.Now().Format("15:04:05")+"  "+format+"\n", args...)
}
