// Scale measures service proxies on a real API server, side by side:
// kube-proxy in nftables mode, in iptables mode if wanted, and nftproxy.
//
//	            network namespaces of the lab
//	┌──────────────────┐          ┌────────────────────────────────┐
//	│ etcd             │  watch   │ proxy ──netlink──► nf_tables   │
//	│ kube-apiserver   │◄─────────┤ (and its children)     │       │
//	│        ▲         │◄─────────┤ bare watch   listener ◄┘       │
//	└────────┼─────────┘          └────────────────────────────────┘
//	     changes                     a new one for each cold start
//
// A change begins just before its request to the API server, and ends with the
// kernel's notification of the transaction that contains it. The bare watch in
// the same namespace measures when a proxy can know of the change at the
// earliest. A start ends with the transaction that completes the rows.
//
// CPU time is measured for the proxy's control group, which includes its
// children. It does not include the work of kernel threads, such as freeing
// memory.
package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/bench/stage"
)

const about = `scale measures kube-proxy and nftproxy side by side on a real API server: starts, changes,
bursts and churn. It needs root, cgroup v2 and a kernel with syscall tracepoints. It cleans up, also when it is
interrupted.`

func main() { report.Main("scale", about, newScale(".")) }

// scale is the benchmark.
type scale struct {
	programs  stage.Programs
	services  []int
	endpoints int
	alone     []string
	subjects  []string
	changes   int
	budget    time.Duration
	scenario  string
	published string // see scenario
	sizes     []size

	// The tests set smaller values.
	few           int // largest number of Services, and of thousands of flows, of a scenario; 0 for any
	starts        int
	calm          time.Duration // longest wait for an idle machine before a start
	rest          time.Duration // work for so long after a start belongs to it
	churnServices int           // number of Services at which churn is measured
	churnRate     int           // changes per second
	churnTime     time.Duration
}

// size is a size of the cluster, and the proxies that are measured at it.
type size struct {
	services, endpoints int
	proxies             []string
	atOnce              bool // the Services are first created while the proxy runs
	flows               int  // of a UDP Service that loses an endpoint; 0 for no such Service
}

func (s size) String() string { return fmt.Sprintf("%d x %d", s.services, s.endpoints) }

func newScale(repository string) *scale {
	return &scale{
		programs: stage.InRepository(repository), starts: 3, calm: 30 * time.Second, rest: 3 * time.Second,
		churnServices: 10_000, churnRate: 100, churnTime: time.Minute,
	}
}

// AddFlags implements report.Benchmark.
func (s *scale) AddFlags(flags *pflag.FlagSet) {
	flags.IntSliceVar(&s.services, "services", []int{100, 1000, 5000, 10_000}, "Numbers of Services.")
	flags.IntVar(&s.endpoints, "endpoints", 10, "Endpoints of each Service.")
	flags.StringSliceVar(&s.alone, "alone", []string{"45000x6"},
		"Sizes at which only nftproxy is measured, `SERVICESxENDPOINTS`.")
	stage.AddSubjects(flags, &s.subjects)
	flags.IntVar(&s.changes, "changes", 50, "Changes of each kind.")
	flags.DurationVar(&s.budget, "budget", 3*time.Minute,
		"Time after which starts and changes are not repeated, once there are 1 and 10 of them.")
	flags.StringVar(&s.scenario, "scenario", "", "The `NAME` of the workload of a report, instead of other sizes.")
}

// check validates the flags and sets the sizes.
func (s *scale) check() error {
	if s.changes < 1 {
		return errors.New("--changes: want at least 1")
	}
	if s.scenario != "" {
		return s.choose()
	}
	slices.Sort(s.services)
	for _, n := range s.services {
		s.sizes = append(s.sizes, size{services: n, endpoints: s.endpoints, proxies: s.subjects})
	}
	for _, text := range s.alone {
		one := size{proxies: []string{stage.Product}}
		if _, err := fmt.Sscanf(text, "%dx%d", &one.services, &one.endpoints); err != nil {
			return fmt.Errorf("--alone %q: want SERVICESxENDPOINTS", text)
		}
		s.sizes = append(s.sizes, one)
	}
	for _, one := range s.sizes {
		if one.services < 1 || one.services > stage.MaxServices || one.endpoints < 1 || one.endpoints > 60 {
			return fmt.Errorf("size %s: want 1 to %d Services of 1 to 60 endpoints", one, stage.MaxServices)
		}
	}
	return nil
}

// Measure implements report.Benchmark. Sizes with the same number of endpoints
// share an API server.
func (s *scale) Measure(ctx context.Context, r *report.Report) (err error) {
	if err := s.check(); err != nil {
		return err
	}
	if r.Versions, err = s.programs.Versions(s.subjects); err != nil {
		return err
	}
	_, began, err := stalls(0)
	if err != nil {
		return err
	}
	var w *world
	var late []string // proxies whose other figures are missing
	defer func() { err = errors.Join(err, w.close()) }()
	for _, size := range s.sizes {
		for _, proxy := range size.proxies {
			if w, err = s.prepare(ctx, w, size); err != nil {
				return err
			}
			r.Say("%d Services of %d endpoints are loaded", w.services, w.endpoints)
			run := run{world: w, scale: s, report: r, proxy: proxy, size: size}
			if err := run.measure(ctx); errors.Is(err, stage.ErrLate) {
				late = append(late, fmt.Sprintf("%s, %s: %v", proxy, size, err))
				r.Say("%s", late[len(late)-1])
			} else if err != nil {
				return fmt.Errorf("%s, %s: %w", proxy, size, err)
			}
			if err := r.Save(); err != nil {
				return err
			}
		}
	}
	stalled, _, err := stalls(began)
	if len(stalled) == 0 {
		stalled = []string{"No soft lockup or stall in the kernel's log."}
	}
	r.Notes = slices.Concat(strings.Split(notes, "\n"), late, stalled)
	if s.published != "" {
		const issues = "https://github.com/kubernetes/kubernetes/issues/"
		r.Notes = append(r.Notes, fmt.Sprintf("published for kube-proxy: %s (%s%s)",
			s.published, issues, strings.TrimPrefix(s.scenario, "k")))
	}
	return err
}

// prepare returns a world for one proxy, w if that is possible.
func (s *scale) prepare(ctx context.Context, w *world, size size) (*world, error) {
	services := size.services
	if size.atOnce {
		services = 0
	}
	if w == nil || w.endpoints != size.endpoints || w.services > services {
		if err := w.close(); err != nil {
			return nil, err
		}
		var err error
		if w, err = s.newWorld(ctx, size.endpoints); err != nil {
			return nil, err
		}
	}
	return w, w.load(ctx, services)
}

const notes = `cold start, restart: from exec, in an empty namespace or on the proxy's own table, until all rows exist
other rows: from the API write to the commit, or to the last commit if there are several at once
watch alone: until the event reaches a watch in the same namespace
CPU, sends, sent, received: means, including what the proxy does until it is idle again; of the whole churn
with children: the largest VmRSS of the process and its children in that phase`

// scenario is the workload of a report about kube-proxy.
type scenario struct {
	name      string
	size      size
	published string // figures of kube-proxy in the report; empty if there is no report
}

// scenarios returns the workloads of the known reports, and the largest one for
// a machine with 24 GB.
func scenarios() []scenario {
	both, one := []string{stage.Upstream, stage.Product}, []string{stage.Product}
	return []scenario{
		{"k139513", size{services: 44_125, endpoints: 1, proxies: both},
			"sync of everything 16 min 44 s; one change 1.33 s with netlink listing"},
		{"k135639", size{services: 5_006, endpoints: 50, proxies: both},
			"sync of everything 2 min 13 s, on Linux 6.1 13 min 15 s, with soft lockups"},
		{"k126013", size{services: 10_000, endpoints: 2, proxies: both, atOnce: true},
			"all created: 25 min before and 9 min after partial syncs; one more Service 141 ms"},
		{"k129982", size{services: 100, endpoints: 10, proxies: both, flows: 1_000_000},
			"12 GB of memory with 7,538,373 entries of connection tracking"},
		{"limit", size{services: stage.MaxServices, endpoints: 2, proxies: one}, ""},
	}
}

// choose makes a scenario the only size. Proxies that are not selected are left
// out.
func (s *scale) choose() error {
	var names []string
	for _, c := range scenarios() {
		if c.name == s.scenario {
			unwanted := func(proxy string) bool { return !slices.Contains(s.subjects, proxy) }
			c.size.proxies = slices.DeleteFunc(c.size.proxies, unwanted)
			if s.few > 0 {
				c.size.services = min(c.size.services, s.few)
				c.size.flows = min(c.size.flows, 1000*s.few)
			}
			s.subjects, s.sizes, s.published = c.size.proxies, []size{c.size}, c.published
			return nil
		}
		names = append(names, c.name)
	}
	return fmt.Errorf("--scenario %q: want one of %s", s.scenario, strings.Join(names, ", "))
}
