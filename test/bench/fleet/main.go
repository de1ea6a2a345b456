// Fleet measures what the service proxies of many nodes cost an API server: its
// CPU time, its memory and the bytes that it sends, while the proxies of all
// nodes start, while they are restarted a tenth at a time, and while Services
// change.
//
//	 nftproxy ─┐ (programs, once)
//	kube-proxy ┴─► recorder ─► kube-apiserver ─► etcd
//	                   │            ▲
//	                requests ─► N clients (discard what arrives), or
//	                            N informers of the proxy
//
// The recorder is an HTTP proxy that shows the requests of the real programs.
// The benchmark fails if its own informers send different requests.
// The clients then send the recorded requests, each over a separate TLS
// connection, with HTTP/2 and the token of a service account, so that the API
// server's priority and fairness applies. They read and discard the bytes,
// without decompressing or decoding, so that hundreds fit on one machine. A
// client repeats a request that the API server refuses. The rows with real
// clients show how well this stands for informers.
//
// The API server is restarted before each proxy and number of nodes. Its CPU
// time and memory are of its own process only, so clients and etcd do not
// count, but they share the processors: times are longer than with an API
// server that has a machine of its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/bench/stage"
	"github.com/nftproxy/nftproxy/test/lab"
)

const about = `fleet measures what the proxies of many nodes cost a real API server: nftproxy, kube-proxy, and variants
of their requests. It needs root. It cleans up, also when it is interrupted.`

func main() { report.Main("fleet", about, newFleet(".")) }

// fleet is the benchmark.
type fleet struct {
	*stage.Stage
	programs            stage.Programs
	nodes               []int
	real                int // nodes with informers
	services, endpoints int
	subjects            []string
	waves               int // of a tenth of the nodes each
	rate                int // changes per second
	steady              time.Duration
	calm                time.Duration // longest wait for an idle machine; the test sets a smaller value

	counters
	report   *report.Report
	from     *lab.Pod // of all connections
	token    string
	requests map[string][]request // by proxy or variant
	alone    float64              // CPU seconds of a change without nodes
	changed  int                  // changes so far
}

func newFleet(repository string) *fleet {
	return &fleet{programs: stage.InRepository(repository), calm: 20 * time.Second, requests: map[string][]request{}}
}

// AddFlags implements report.Benchmark.
func (f *fleet) AddFlags(flags *pflag.FlagSet) {
	flags.IntSliceVar(&f.nodes, "nodes", []int{50, 200, 500}, "Numbers of nodes.")
	flags.IntVar(&f.real, "real", 20, "Nodes with informers that decode what arrives, for comparison. 0 for none.")
	flags.IntVar(&f.services, "services", 10_000, "Number of Services.")
	flags.IntVar(&f.endpoints, "endpoints", 10, "Endpoints of each Service.")
	flags.StringSliceVar(&f.subjects, "subjects", []string{stage.Product, stage.Upstream},
		fmt.Sprintf("Proxies to measure, %q and %q. There is also %q.", stage.Product, stage.Upstream, plain))
	flags.IntVar(&f.waves, "waves", 10, "Waves of a rolling restart, each of a tenth of the nodes.")
	flags.IntVar(&f.rate, "rate", 50, "Changes per second.")
	flags.DurationVar(&f.steady, "steady", 20*time.Second, "Time of changes.")
}

// plain is nftproxy without compression.
const plain = "nftproxy without gzip"

// Titles of tables.
const (
	starts = "Starts"
	steady = "Steady state"
)

// check validates the flags.
func (f *fleet) check() error {
	for _, subject := range f.subjects {
		if informersOf[subject] == nil && subject != plain {
			return fmt.Errorf("--subjects: unknown %q", subject)
		}
	}
	if len(f.nodes) == 0 || slices.Min(f.nodes) < 1 || slices.Max(f.nodes) > 10_000 {
		return errors.New("--nodes: want 1 to 10000 nodes")
	}
	if f.services < 1 || f.services > stage.MaxServices || f.endpoints < 1 || f.endpoints > 60 {
		return fmt.Errorf("want 1 to %d Services of 1 to 60 endpoints", stage.MaxServices)
	}
	if f.waves < 1 || f.waves > 10 || f.rate < 1 || f.real < 0 {
		return errors.New("want 1 to 10 waves, at least one change per second and no negative number of nodes")
	}
	return nil
}

// Measure implements report.Benchmark.
func (f *fleet) Measure(ctx context.Context, r *report.Report) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	f.report = r
	r.Notes = strings.Split(notes, "\n")
	klog.SetLogger(klog.Logger{}) // informers log that their watches end
	if r.Versions, err = f.programs.Versions([]string{stage.Product, stage.Upstream}); err != nil {
		return err
	}
	if f.Stage, err = stage.New(ctx, f.programs); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.prepare(ctx); err != nil {
		return err
	}
	if _, err := f.fresh(ctx); err != nil {
		return err
	}
	if err := f.measureChanges(ctx, members{0, "none", "none"}); err != nil {
		return err
	}
	for _, m := range f.members() {
		if err := f.measure(ctx, m); err != nil {
			return fmt.Errorf("%d nodes of %s: %w", m.n, m.proxy, err)
		}
		if err := r.Save(); err != nil {
			return err
		}
	}
	return nil
}

// members are nodes of a proxy that are measured together.
type members struct {
	n              int
	proxy, clients string
}

// real and simulated are kinds of clients.
const real, simulated = "real", "simulated"

// members returns what is measured, in this order.
func (f *fleet) members() (all []members) {
	for _, clients := range []string{real, simulated} {
		for _, proxy := range f.subjects {
			if f.real > 0 && informersOf[proxy] != nil {
				all = append(all, members{f.real, proxy, clients})
			}
		}
	}
	for _, n := range f.nodes {
		for _, proxy := range f.subjects {
			all = append(all, members{n, proxy, simulated})
		}
	}
	return all
}

const notes = `at once: from the first connection until the last node has all objects and has begun its watches
N at a time: N nodes end, start again, and have all objects before the next N
refused: requests that the API server asked to repeat, and lists that broke off; ended: watches that it ended
sent: bytes that arrive, with TLS; CPU, peak memory: of the process kube-apiserver alone
and node: CPU time of a change, less the time without nodes, for each node`

// prepare creates the objects and records the requests.
func (f *fleet) prepare(ctx context.Context) (err error) {
	if f.from, err = f.Lab.Node1.AddPod("fleet"); err != nil {
		return err
	}
	const namespace, account = "kube-system", "kube-proxy"
	for _, args := range [][]string{
		{"create", "serviceaccount", account, "--namespace=" + namespace},
		{"create", "clusterrolebinding", account, "--clusterrole=system:node-proxier",
			"--serviceaccount=" + namespace + ":" + account},
	} {
		if _, err := f.Cluster.Kubectl(ctx, "", args...); err != nil {
			return err
		}
	}
	if f.token, err = f.Cluster.Token(ctx, namespace, account); err != nil {
		return err
	}
	if err := f.createNodes(ctx, max(f.real, slices.Max(f.nodes))); err != nil {
		return err
	}
	for _, proxy := range []string{stage.Product, stage.Upstream} {
		if f.requests[proxy], err = f.requestsOf(ctx, proxy); err != nil {
			return err
		}
		f.report.Notes = append(f.report.Notes, "", "Requests of a start of "+proxy+", in this order:")
		for _, one := range f.requests[proxy] {
			f.report.Notes = append(f.report.Notes, one.summary())
		}
	}
	for _, one := range f.requests[stage.Product] {
		one.header = one.header.Clone()
		one.header.Del(acceptEncoding)
		f.requests[plain] = append(f.requests[plain], one)
	}
	err = f.Load(ctx, 0, f.services, func(service int) []netip.Addr { return stage.Endpoints(service, f.endpoints) })
	f.report.Say("%d Services of %d endpoints are loaded", f.services, f.endpoints)
	return err
}

// addRow adds a row of members. started is the number of nodes that started.
func (f *fleet) addRow(table string, m members, what string, u usage, started int, more ...report.Figure) {
	row := []report.Figure{
		report.Number("nodes", m.n), report.Label("proxy", m.proxy), report.Label("clients", m.clients),
		report.Label("", what), report.Value("time", report.Seconds, u.took.Seconds()),
		report.Value("CPU", report.Seconds, u.cpu), report.Value("sent", report.Bytes, u.sent),
		report.Value("peak memory", report.Bytes, u.peak),
	}
	if table == starts {
		per := float64(started)
		row = append(row, report.Value("CPU per node", report.Seconds, u.cpu/per),
			report.Value("sent per node", report.Bytes, float64(u.sent)/per),
			report.Number("refused", u.refused))
	}
	row = append(append(row, more...), report.Number("ended", u.ended))
	f.report.AddRow(table, row...)
}
