// Dataplane measures the cost of the rules of service proxies, for new
// connections and for established flows. It compares no rules, one static DNAT
// rule, two builds of kube-proxy in nftables mode, kube-proxy in iptables mode
// if wanted, and nftproxy, the proxies with few and with many Services.
//
//	pod ── veth ── node ── veth ── server      each a network namespace
//	 │              │  rules         │
//	 │              └── client ──────┤ path "node": output, postrouting
//	 └──────────────── client ───────┘ path "pod": prerouting, forward, postrouting
//
// The proxies get the same configuration file, write their tables from a real
// API server, and are stopped before the first measurement, so that only their
// tables have an effect. Each variant has several instances, in separate
// namespaces, because the location of rules and rows in memory changes the
// figures by a few percent. Every round measures all instances in a new random
// order, each for some milliseconds. A comparison with the static rule uses the
// static rule's figures of the same round.
//
// A client is a thread that only makes system calls. It does the server's work
// too: the kernel delivers a packet through veth within the system call that
// sends the packet, so no thread waits for another.
//
// New connections: the latency of TCP is the time of connect(). The latency of
// UDP is the time of a request from a new socket, its processing by the server
// and the answer. Connections per second count whole cycles, from socket() to
// close() and the server's accept(), with one client on each processor. A
// connection that takes longer than half a second is counted as late.
//
// Established flows: a client opens one flow, TCP or UDP, and exchanges a first
// request and answer, so that conntrack has seen packets of both directions.
// Then it measures requests of one byte over this flow, each with its
// processing by the server and the answer: their latency, and their rate in one
// thread that sends the next request after each answer. Each request costs two
// packets through the rules, the request and the answer (TCP sends its ACKs
// with these). Every measurement opens a new flow. Without rules, the kernel
// does not track flows, for new connections and established flows alike.
//
// All clients have addresses of the cluster, so nothing is masqueraded. Clients
// outside of the cluster and NodePorts are not measured. Flows are removed from
// conntrack after every measurement. A "known" client of a Service with session
// affinity has an endpoint already; 64 of them connect in turn. A "new" client
// connects for the first time. A Service "guarded" by prefix lengths has
// loadBalancerSourceRanges of that many lengths; clients are in the shortest
// one. A connection "not to a Service" is to an endpoint. Only nftproxy knows a
// source hash; for other proxies it is a plain Service.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/bench/stage"
	"github.com/nftproxy/nftproxy/test/lab/listing"
)

const about = `dataplane measures the cost of the rules of kube-proxy and nftproxy for new connections and for
established flows, compared with one static rule and with no rules. It needs root and the program nft. It cleans up,
also when it is interrupted.`

func main() { report.Main("dataplane", about, newDataplane(".")) }

// dataplane is the benchmark.
type dataplane struct {
	programs  stage.Programs
	proxies   []string
	sizes     []int // numbers of Services
	rounds    int
	instances int // of each variant
	traffic   string
	wanted    *regexp.Regexp // traffic

	// The tests set smaller values.
	connections int           // or requests, per measurement of latency
	throughput  time.Duration // of a measurement of a rate

	report   *report.Report
	subjects []*subject
	results  map[key]*series
}

// Numbers of endpoints.
const (
	endpoints         = 10
	affinityEndpoints = 50
)

func newDataplane(repository string) *dataplane {
	return &dataplane{
		programs: stage.InRepository(repository), connections: 500, throughput: 60 * time.Millisecond,
		results: map[key]*series{},
	}
}

// AddFlags implements report.Benchmark.
func (d *dataplane) AddFlags(flags *pflag.FlagSet) {
	flags.IntSliceVar(&d.sizes, "services", []int{100, 10_000}, "Numbers of Services.")
	stage.AddSubjects(flags, &d.proxies)
	flags.IntVar(&d.rounds, "rounds", 30, "Rounds in which all variants are measured.")
	flags.IntVar(&d.instances, "instances", 3, "Instances of each variant.")
	flags.StringVar(&d.traffic, "traffic", "", "A regular expression: the kinds of traffic to measure besides TCP.")
}

// Measure implements report.Benchmark.
func (d *dataplane) Measure(ctx context.Context, r *report.Report) (err error) {
	d.report = r
	if d.wanted, err = regexp.Compile(d.traffic); err != nil {
		return fmt.Errorf("--traffic: %w", err)
	}
	d.sizes = slices.Compact(slices.Sorted(slices.Values(d.sizes)))
	n := len(d.sizes)
	if n == 0 || d.sizes[0] < 1 || d.sizes[n-1] > maxServices || d.rounds < 1 || d.instances < 1 {
		return fmt.Errorf("want 1 to %d Services, and at least one round and instance", maxServices)
	}
	if r.Versions, err = d.programs.Versions(d.proxies); err != nil {
		return err
	}
	s, err := stage.New(ctx, d.programs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := d.prepare(ctx, s); err != nil {
		return err
	}
	if _, err := stage.AwaitCalm(ctx, 30*time.Second); err != nil {
		return err
	}
	if r.Machine.Load, err = report.LoadAverage(); err != nil {
		return err
	}
	// A garbage collection would stop clients; there is one after every
	// scenario.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, one := range d.subjects {
		if err := one.introduce(); err != nil {
			return fmt.Errorf("%s: %w", one.variant, err)
		}
	}
	began := time.Now()
	for i := range d.rounds {
		if err := d.measureRound(ctx); err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		if i == 0 {
			r.Say("a round of %d takes %.1f s", d.rounds, time.Since(began).Seconds())
		}
	}
	d.fill(r)
	return nil
}

// measureRound measures every scenario, each in all subjects one after the
// other: figures that are compared are measured within seconds.
func (d *dataplane) measureRound(ctx context.Context) error {
	for _, c := range shuffled(scenarios(d.wanted)) {
		runtime.GC()
		round := map[variant][]measurement{}
		for _, one := range shuffled(d.subjects) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if c.special() && !one.proxied() {
				continue
			}
			m, err := d.measureScenario(one, c)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", one.variant, c, err)
			}
			round[one.variant] = append(round[one.variant], m)
		}
		for v, measurements := range round {
			d.add(v, c, measurements)
		}
	}
	return nil
}

func (d *dataplane) measureScenario(one *subject, c scenario) (m measurement, err error) {
	m.instance = one.instance
	if m.latencies, err = one.latencies(c, d.connections); err != nil {
		return m, err
	}
	if c.clients > 0 { // there are not enough addresses for new clients
		m.rate, err = one.perSecond(c, d.throughput)
	}
	if m.late = int(one.late.Swap(0)); m.late > 0 {
		d.report.Say("%s, instance %d, %s: %d late connections", one.variant, one.instance, c, m.late)
	}
	return m, err
}

// shuffled returns the elements in a random order.
func shuffled[T any](all []T) []T {
	out := slices.Clone(all)
	rand.Shuffle(len(out), func(i, k int) { out[i], out[k] = out[k], out[i] })
	return out
}

// prepare makes all instances of all variants, and ends the API server.
func (d *dataplane) prepare(ctx context.Context, s *stage.Stage) error {
	for _, rules := range []string{noRules, staticRule} {
		if err := d.makeSubjects(ctx, s, variant{rules: rules}, d.sizes[0]); err != nil {
			return err
		}
	}
	if err := createServices(ctx, s); err != nil {
		return err
	}
	loaded := 0
	for _, services := range d.sizes {
		tenEach := func(service int) []netip.Addr { return stage.Endpoints(service, endpoints) }
		if err := s.Load(ctx, loaded, services, tenEach); err != nil {
			return err
		}
		loaded = services
		for _, proxy := range d.proxies {
			if err := d.makeSubjects(ctx, s, variant{proxy, services}, services); err != nil {
				return err
			}
		}
	}
	return s.CloseCluster()
}

// makeSubjects makes all instances of a variant.
func (d *dataplane) makeSubjects(ctx context.Context, s *stage.Stage, v variant, many int) error {
	for i := range d.instances {
		one := &subject{variant: v, instance: i, many: many}
		write := d.writeProxyRules
		if !one.proxied() {
			write = writeStaticRules
		}
		if err := write(ctx, s, one); err != nil {
			return fmt.Errorf("%s: %w", v, err)
		}
		d.subjects = append(d.subjects, one)
	}
	return nil
}

// writeProxyRules makes a place whose node has the table of a proxy. The proxy
// does not run afterwards.
func (d *dataplane) writeProxyRules(ctx context.Context, s *stage.Stage, one *subject) error {
	node, err := s.NewNode(ctx, one.variant.rules)
	if err != nil {
		return err
	}
	one.place, err = newPlace(s.Lab, node.Pod)
	if err = errors.Join(err, node.Start(ctx)); err != nil {
		return err
	}
	want := stage.Frontends(one.many)
	for to := range services {
		if to != plainUDP { // all others are over TCP
			want = append(want, to.address(one.many, one.variant.rules))
		}
	}
	at, err := node.AwaitProgrammed(want)
	if err != nil {
		return err
	}
	d.report.Say("%s: programmed after %.1f s", one.variant, at.Sub(node.Process.Began).Seconds())
	err = node.Process.Pause(time.Second) // for the rest of the work after the first sync
	node.Stop()
	return err
}

// writeStaticRules makes a place whose node has no rules, or the fewest rules
// that forward a TCP and a UDP frontend to one endpoint each.
func writeStaticRules(ctx context.Context, s *stage.Stage, one *subject) error {
	node, err := s.Lab.Node1.AddPod(fmt.Sprintf("%s%d", one.variant.rules[:2], one.instance))
	if err != nil {
		return err
	}
	if one.place, err = newPlace(s.Lab, node); err != nil || one.variant.rules == noRules {
		return err
	}
	var rules string
	for _, to := range []target{plainTCP, plainUDP} {
		from := to.address(one.many, staticRule)
		rules += fmt.Sprintf("ip daddr %s %s dport %d dnat to %s; ",
			from.Addr(), strings.ToLower(string(to)), from.Port(), to.address(one.many, noRules))
	}
	_, err = listing.Run(ctx, node.Namespace, fmt.Sprintf(`table ip static {
		chain prerouting { type nat hook prerouting priority dstnat; %[1]s }
		chain output { type nat hook output priority -100; %[1]s }
	}`, rules))
	return err
}
