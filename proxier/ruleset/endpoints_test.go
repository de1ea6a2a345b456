package ruleset

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// endpointsFrom reads endpoints as "last-byte[@node][conditions][hints]": r ready, s serving, t terminating; z:a zone hint, n:x node hint.
func endpointsFrom(specs string) []*cluster.Endpoint {
	var out []*cluster.Endpoint
	for _, spec := range strings.Fields(specs) {
		parts := strings.Split(spec, ",")
		last, node, _ := strings.Cut(parts[0], "@")
		e := &cluster.Endpoint{
			EndpointKey: cluster.EndpointKey{Addr: addr("10.244.0." + last)}, Node: node,
			Ports: []cluster.EndpointPort{{Protocol: cluster.TCP, Port: 80}},
		}
		for _, p := range parts[1:] {
			kind, value, hint := strings.Cut(p, ":")
			if hint && e.Hints == nil {
				e.Hints = new(cluster.Hints)
			}
			switch {
			case hint && kind == "z":
				e.Hints.Zones = append(e.Hints.Zones, value)
			case hint && kind == "n":
				e.Hints.Nodes = append(e.Hints.Nodes, value)
			default:
				e.Ready, e.Serving, e.Terminating = strings.Contains(p, "r"), strings.Contains(p, "s"), strings.Contains(p, "t")
			}
		}
		out = append(out, e)
	}
	return out
}

// lasts names targets by the last byte of their address.
func lasts(ts []Target) string {
	var out []string
	for _, t := range ts {
		out = append(out, fmt.Sprint(t.Addr().As4()[3]))
	}
	return strings.Join(out, " ")
}

func TestUsable(t *testing.T) {
	node := &cluster.Node{Name: "us", Zone: "a"}
	for _, tt := range []struct{ name, endpoints, cluster, local string }{
		{"none", "", "", ""},
		{"ready ones", "1@us,rs 2@them,rs 3@them,", "1 2", "1"},
		{"terminating ones where none is ready", "1@us,st 2@them,st 3@them,t", "1 2", "1"},
		{"no terminating ones beside ready ones", "1@us,st 2@them,rs", "2", "1"},
		{"a fallback of its own for this node", "1@us,rs 2@us,st 3@them,rs", "1 3", "1"},
		{"neither ready nor serving", "1@us, 2@them,t", "", ""},
		{"serving but neither ready nor terminating", "1@us,s", "", ""},
		{"zone hints", "1@us,rs,z:a 2@them,rs,z:b 3@them,rs,z:a,z:b", "1 3", "1"},
		{"zone hints do not narrow local ones", "1@us,rs,z:b 2@them,rs,z:a", "2", "1"},
		{"no zone hint for us", "1@us,rs,z:b 2@them,rs,z:b", "1 2", "1"},
		{"one without zone hint", "1@us,rs,z:a 2@them,rs", "1 2", "1"},
		{"one that is not ready needs no hint", "1@us,rs,z:a 2@them,rs,z:b 3@them,st", "1", "1"},
		{"node hints before zone hints", "1@us,rs,z:b,n:us 2@them,rs,z:a,n:them", "1", "1"},
		{"node hints for others only: zone hints", "1@us,rs,z:b,n:them 2@them,rs,z:a,n:them", "2", "1"},
		{"node hints not everywhere: zone hints", "1@us,rs,z:a,n:us 2@them,rs,z:a", "1 2", "1"},
		{"no hints among terminating ones", "1@us,st,z:b 2@them,st,z:a", "1 2", "1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := candidates(nil, endpointsFrom(tt.endpoints), nft.IPv4, cluster.ServicePort{Protocol: cluster.TCP, Port: 80}, node)
			if got := lasts(usableForCluster(all, node)); got != tt.cluster {
				t.Errorf("usable for Cluster: %q, want %q", got, tt.cluster)
			}
			if got := lasts(usableForLocal(all, node)); got != tt.local {
				t.Errorf("usable for Local: %q, want %q", got, tt.local)
			}
		})
	}
}

func TestNoHintsWithoutZone(t *testing.T) {
	node := &cluster.Node{Name: "us"}
	all := candidates(nil, endpointsFrom("1@us,rs,z:a 2@them,rs,z:b"), nft.IPv4, cluster.ServicePort{Protocol: cluster.TCP, Port: 80}, node)
	if got := lasts(usableForCluster(all, node)); got != "1 2" {
		t.Errorf("a node without zone uses %q, want all", got)
	}
}

func TestCandidates(t *testing.T) {
	port := cluster.ServicePort{Name: "http", Protocol: cluster.TCP, Port: 80}
	endpoint := func(source, ip string, ready bool, ports ...cluster.EndpointPort) *cluster.Endpoint {
		return &cluster.Endpoint{EndpointKey: cluster.EndpointKey{Source: source, Addr: addr(ip)}, Ports: ports, Ready: ready}
	}
	http := func(n uint16) cluster.EndpointPort {
		return cluster.EndpointPort{Name: "http", Protocol: cluster.TCP, Port: n}
	}
	got := candidates(nil, []*cluster.Endpoint{
		endpoint("a", "10.0.0.2", true, http(8080)),
		endpoint("a", "10.0.0.1", false, http(8080)),
		endpoint("b", "10.0.0.1", true, http(8080)), // the same, but ready
		endpoint("b", "10.0.0.1", true, http(9090)),
		endpoint("b", "10.0.0.3", true, cluster.EndpointPort{Name: "http", Protocol: cluster.UDP, Port: 80}),   // another protocol
		endpoint("b", "10.0.0.4", true, cluster.EndpointPort{Name: "https", Protocol: cluster.TCP, Port: 443}), // another port
		endpoint("b", "10.0.0.5", true, http(0)),                                                               // all ports
		endpoint("b", "fd00::1", true, http(8080)),                                                             // another family
	}, nft.IPv4, port, &cluster.Node{Name: "us"})
	var names []string
	for _, c := range got {
		names = append(names, fmt.Sprintf("%s ready=%v here=%v", c.AddrPort, c.Ready, c.Here))
	}
	want := []string{
		"10.0.0.1:8080 ready=true here=true", "10.0.0.1:9090 ready=true here=true",
		"10.0.0.2:8080 ready=true here=true", "10.0.0.5:80 ready=true here=true",
	}
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

func targetsFrom(lasts string) []Target {
	var out []Target
	for _, l := range strings.Fields(lasts) {
		out = append(out, Target{AddrPort: netip.AddrPortFrom(addr("10.244.0."+l), 80)})
	}
	return out
}

func TestArrange(t *testing.T) {
	for _, tt := range []struct{ name, before, now, want string }{
		{"from nothing", "", "1 2 3", "1 2 3"},
		{"to nothing", "1 2 3", "", ""},
		{"one more", "1 2", "0 1 2", "1 2 0"},
		{"one replaced", "1 2 3", "1 3 4", "1 4 3"},
		{"the last moves into the gap", "1 2 3 4", "2 3 4", "4 2 3"},
		{"the last goes", "1 2 3", "1 2", "1 2"},
		{"all others", "1 2", "3 4", "3 4"},
		{"order alone is no change", "3 1 2", "1 2 3", "3 1 2"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := lasts(arrange(targetsFrom(tt.before), targetsFrom(tt.now))); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// Whatever changes, every target has one place, and no more places change than targets come and go.
func TestArrangeRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var before, now []Target
		for _, l := range r.Perm(12) {
			x := Target{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(l)}), 80)}
			if r.IntN(2) == 0 {
				before = append(before, x)
			}
			if r.IntN(2) == 0 {
				now = append(now, x)
			}
		}
		got := arrange(before, now)
		left := slices.Clone(got)
		for _, x := range now {
			left = slices.DeleteFunc(left, func(y Target) bool { return x == y })
		}
		if len(got) != len(now) || len(left) != 0 {
			t.Fatalf("arrange(%s, %s) = %s", lasts(before), lasts(now), lasts(got))
		}
		changed, come, gone := 0, 0, 0
		for i := range min(len(before), len(got)) {
			if before[i] != got[i] {
				changed++
			}
		}
		for _, x := range now {
			if !slices.Contains(before, x) {
				come++
			}
		}
		for _, x := range before {
			if !slices.Contains(now, x) {
				gone++
			}
		}
		if changed > max(come, gone) {
			t.Fatalf("arrange(%s, %s) = %s changes %d places for %d that come and %d that go", lasts(before), lasts(now), lasts(got), changed, come, gone)
		}
	}
}
