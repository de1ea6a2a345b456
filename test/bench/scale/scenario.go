package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/bench/stage"
)

// scenario is the workload of a report about kube-proxy.
type scenario struct {
	name      string
	size      size
	published string // figures of kube-proxy in the report; empty if there is no report
}

// scenarios returns the workloads of the known reports, and the largest one for
// a machine with 24 GB.
func scenarios() []scenario {
	both, one := []string{stage.Netlink, stage.Product}, []string{stage.Product}
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
				c.size.services, c.size.flows = min(c.size.services, s.few), min(c.size.flows, 1000*s.few)
			}
			s.subjects, s.sizes = c.size.proxies, []size{c.size}
			return nil
		}
		names = append(names, c.name)
	}
	return fmt.Errorf("--scenario %q: want one of %s", s.scenario, strings.Join(names, ", "))
}

// describe adds the scenario to the report.
func (s *scale) describe(r *report.Report) {
	for _, c := range scenarios() {
		if number, reported := strings.CutPrefix(c.name, "k"); c.name == s.scenario && reported {
			const issues = "https://github.com/kubernetes/kubernetes/issues/"
			r.Notes = append(r.Notes, fmt.Sprintf("published for kube-proxy: %s (%s%s)", c.published, issues, number))
		}
	}
}
