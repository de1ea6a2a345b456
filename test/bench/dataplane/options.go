package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/test/apiserver/benchmark"
	"github.com/nftproxy/nftproxy/test/apiserver/dataplane/result"
	"github.com/nftproxy/nftproxy/test/apiserver/scale/stage"
)

// options say what is measured.
type options struct {
	sizes       []int // numbers of Services
	endpoints   int
	affinity    int // endpoints of the Service with session affinity
	proxies     []string
	rules       []string // files
	programs    benchmark.Programs
	output      string // folder
	publish     string // another folder, "" for none
	from        string // file of an earlier result, "" to measure
	instances   int
	rounds      int
	connections int
	throughput  time.Duration
	command     string // that was given

	progress io.Writer
}

// parseOptions reads the command line. The error is pflag.ErrHelp if help is asked for, which is printed then.
func parseOptions(args []string, help io.Writer) (*options, error) {
	o := &options{command: strings.Join(append([]string{"dataplane"}, args...), " ")}
	set := pflag.NewFlagSet("dataplane", pflag.ContinueOnError)
	set.SortFlags = false
	set.SetOutput(help)
	set.Usage = func() { fmt.Fprint(help, usage, set.FlagUsagesWrapped(110)) }
	set.IntSliceVar(&o.sizes, "services", []int{100, 10_000}, "Numbers of Services.")
	set.IntVar(&o.endpoints, "endpoints", 10, "Endpoints of each Service.")
	set.IntVar(&o.affinity, "affinity", 50, "Endpoints of the Service with session affinity.")
	set.StringSliceVar(&o.proxies, "proxies", []string{benchmark.Upstream, benchmark.Product}, "The proxies to measure.")
	set.StringArrayVar(&o.rules, "rules", nil,
		"Measure these rules too: a `FILE` for nft, such as an edited listing of a proxy's, for the first number of Services.")
	o.programs.AddFlags(set)
	set.StringVar(&o.output, "output", ".cache/bench/dataplane-"+time.Now().Format("2006-01-02"), "`FOLDER` for the table, JSON and plots.")
	set.StringVar(&o.publish, "publish", "", "`FOLDER` to write them to in addition.")
	set.StringVar(&o.from, "from", "", "Show the result in this `FILE`, rather than measure.")
	set.IntVar(&o.instances, "instances", 3, "How many times every variant is there.")
	set.IntVar(&o.rounds, "rounds", 30, "Rounds in which all of them are measured.")
	set.IntVar(&o.connections, "connections", 500,
		"Connections, or requests over an established flow, per measurement of latency.")
	set.DurationVar(&o.throughput, "throughput", 60*time.Millisecond,
		"Duration of a measurement of connections or requests per second.")
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if set.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	return o, o.check()
}

const usage = `dataplane measures the cost of the rules of kube-proxy and nftproxy for new connections and for established flows,
compared with one static rule and with no rules.
It needs root and the program nft, and cleans up behind itself, also when it is interrupted.

Usage:
  dataplane [flags]

Flags:
`

func (o *options) check() error {
	for i, services := range o.sizes {
		if services < 1 || services > stage.MaxServices || i > 0 && services <= o.sizes[i-1] {
			return fmt.Errorf("numbers of Services %v: want 1 to %d, in order", o.sizes, stage.MaxServices)
		}
	}
	for _, endpoints := range []int{o.endpoints, o.affinity} {
		if endpoints < 1 || endpoints > 60 {
			return fmt.Errorf("%d endpoints: want 1 to 60", endpoints)
		}
	}
	for _, proxy := range o.proxies {
		if proxy != benchmark.Upstream && proxy != benchmark.Product {
			return fmt.Errorf("proxy %q: want %s or %s", proxy, benchmark.Upstream, benchmark.Product)
		}
	}
	if o.instances < 1 || o.rounds < 1 || o.connections < 1 || o.throughput <= 0 {
		return errors.New("instances, rounds, connections and throughput: want more than 0")
	}
	if o.connections > ports {
		return fmt.Errorf("%d connections: want %d at most, the number of ports", o.connections, ports)
	}
	return o.programs.MakeAbsolute()
}

func (o *options) resultFile() string { return filepath.Join(o.output, result.FileName) }

// say tells of the progress.
func (o *options) say(format string, args ...any) {
	fmt.Fprintf(o.progress, time.Now().Format("15:04:05")+"  "+format+"\n", args...)
}
