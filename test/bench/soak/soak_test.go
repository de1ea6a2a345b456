package main

import (
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/test/bench/stage/stagetest"
	"github.com/nftproxy/nftproxy/test/lab/listing"
)

// TestSoak runs a short form of the soak test.
func TestSoak(t *testing.T) {
	s := newSoak(stagetest.Repository)
	s.programs.Product = stagetest.BuildProduct(t)
	r := stagetest.Run(t, "soak", about, s, nil, "--duration=35s", "--seed=1", "--changes=30", "--connections=200")
	for _, title := range []string{"Load", "Connections", memoryTable} {
		if len(r.Table(title).Rows) == 0 {
			t.Errorf("table %q is empty", title)
		}
	}
}

// TestGrowth checks which samples are a growth.
func TestGrowth(t *testing.T) {
	samples := func(goroutines ...float64) (all []sample) {
		for _, n := range goroutines {
			all = append(all, sample{goroutines: n})
		}
		return all
	}
	q := quantity{constant: 2, of: func(s sample) float64 { return s.goroutines }}
	for _, c := range []struct {
		samples []sample
		grew    bool
	}{
		{samples(50, 50, 50, 50), false},
		{samples(10, 20, 50, 51, 50, 49, 51, 52), false}, // the warm-up
		{samples(50, 50, 90, 50, 50, 50, 90, 50), false}, // single values
		{samples(50, 51, 52, 53, 54, 55, 56, 57), true},
		{samples(50, 50, 50, 53), true},
	} {
		if before, after, grew := q.growth(c.samples); grew != c.grew {
			t.Errorf("%v: from %v to %v: got %t, want %t", c.samples, before, after, grew, c.grew)
		}
	}
}

// TestCanonical checks which changes of a listing are differences.
func TestCanonical(t *testing.T) {
	const text = `table ip kube-proxy {
	comment "rules for kube-proxy"
	set sticky-clients-7 {
		type ipv4_addr . classid
		elements = { 10.0.0.1 . 0:1000 timeout 3h }
	}
	map class-chains {
		elements = { 0:2 : goto balance-2, 0:3 : goto balance-3, f00:7 : goto cluster-ip-chains }
	}
	map service-classes {
		elements = { 10.96.0.1 . tcp . 80 comment "default/a" : 0:2,
			     10.96.0.2 . tcp . 80 : f00:7 }
	}
	map service-targets {
		elements = { 10.96.0.1 . tcp . 80 . 0:1 : 10.1.1.1 . 8080, 10.96.0.1 . tcp . 80 . 0:2 : 10.1.1.2 . 8080 }
	}
	map port-targets {
		elements = { 0:7001 : 10.1.1.1 . 8080, 0:7801 : 10.1.1.1 . 8080 }
	}
	chain port-7 {
		meta priority set numgen random mod 2 offset 28673 goto pick-port
	}
	chain balance-2 {
		meta priority set numgen random mod 2 offset 1 goto pick
	}
	chain balance-3 {
		meta priority set numgen random mod 3 offset 1 goto pick
	}
	chain affinity.a {
		meta priority set 0:1000 ip saddr . meta priority @sticky-clients-7 dnat to 10.1.1.1:8080
		numgen random mod 2 0 meta priority set 0:1000 update @sticky-clients-7 { ip saddr } dnat to 10.1.1.1:80
	}
}
`
	want := canonical(listing.Parse("ip", text))
	for _, c := range []struct {
		from, to string
		differs  bool
	}{
		{"80 . 0:1 : 10.1.1.1", "80 . 0:1 : 10.1.1.3", true},
		{", 10.96.0.1 . tcp . 80 . 0:2 : 10.1.1.2 . 8080", "", true},
		{"80 . 0:2 :", "80 . 100:2 :", true},
		{"\"default/a\" : 0:2", "\"default/a\" : 0:3", true},
		{"0:2 : goto balance-2", "0:2 : goto balance-3", true},
		{"0:3 : goto balance-3, ", "", false}, // idle
		{"f00:7 : goto cluster-ip-chains", "f00:7 : goto service-chains", true},
		{"\t\tmeta priority set numgen random mod 2 offset 1 goto pick\n", "", true},
		{"dnat to 10.1.1.1:80\n\t}", "dnat to 10.1.1.2:80\n\t}", true},
		{"comment \"rules for kube-proxy\"", "flags dormant", true},
		{"mod 2 offset 28673", "mod 3 offset 28673", true},
		{"0:7001 : 10.1.1.1", "0:7001 : 10.1.1.2", true},
		{"chain port-7", "chain port-local-7", true},
		{"chain port-7", "chain port-8", false},
		{"offset 28673", "offset 32769", false},
		{"0:7001 : 10.1.1.1", "0:8004 : 10.1.1.1", false},
		{"80 . 0:2 : 10.1.1.2", "80 . 0:7 : 10.1.1.2", false},
		{"set 0:1000 ip", "set 0:1267 ip", false},
		{"10.0.0.1 . 0:1000", "10.0.0.2 . 0:1000", false},
		{"chain affinity.a {", "chain affinity.b {", true},
		{"chain affinity.a {\n\t\tmeta", "chain affinity.a {\n" +
			"\t\tmeta priority set 0:1388 ip saddr . meta priority @sticky-clients-7 jump affinity-known.5000.a\n" +
			"\t}\n\tchain affinity-known.5000.a {\n\t\tmeta", false},
		{"set 0:1000 update", "set 0:1388 update @sticky-clients-7 { ip saddr } " +
			"meta priority set 0:1000 update", false},
		{"chain balance-3", "chain balance-4", false}, // idle
	} {
		changed := strings.Replace(text, c.from, c.to, 1)
		if changed == text {
			t.Fatalf("%q is not in the listing", c.from)
		}
		if d := listing.Difference(want, canonical(listing.Parse("ip", changed))); (d != "") != c.differs {
			t.Errorf("%q instead of %q: got difference %q", c.to, c.from, d)
		}
	}
}

// TestPossible checks which versions of an object a proxy can have.
func TestPossible(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	named := func(name string) *cluster.Service {
		return &cluster.Service{Name: cluster.ServiceName{Name: name}}
	}
	v := versions{
		{service: named("a"), from: at(1), applied: at(2)}, {service: named("b"), from: at(3), applied: at(4)},
		{service: named("c"), from: at(5)},
	}
	for _, c := range []struct {
		known, end int
		want       string
	}{
		{0, 1, ""}, {0, 2, ",a"}, {3, 3, "a"}, {3, 4, "a,b"}, {4, 5, "a,b"}, {5, 5, "b"}, {9, 9, "b,c"},
	} {
		got := ""
		for i, one := range v.possible(at(c.known), at(c.end)) {
			if i > 0 {
				got += ","
			}
			if one.service != nil {
				got += one.service.Name.Name
			}
		}
		if got != c.want {
			t.Errorf("known %d, end %d: got %q, want %q", c.known, c.end, got, c.want)
		}
	}
}
