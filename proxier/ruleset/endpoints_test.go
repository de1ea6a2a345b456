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

// endpointsFrom parses endpoints that are separated by spaces. Each is
// last-byte[@node][,conditions][,hint]…: r means ready, s serving, t
// terminating, z:a a hint for zone a, and n:x a hint for node x.
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
				e.Ready, e.Serving = strings.Contains(p, "r"), strings.Contains(p, "s")
				e.Terminating = strings.Contains(p, "t")
			}
		}
		out = append(out, e)
	}
	return out
}

// lastBytes returns the last bytes of the addresses of targets.
func lastBytes(ts []Target) string {
	var out []string
	for _, t := range ts {
		out = append(out, fmt.Sprint(t.Addr.As4()[3]))
	}
	return strings.Join(out, " ")
}

// port80 is the service port of endpointsFrom.
var port80 = cluster.ServicePort{Protocol: cluster.TCP, Port: 80}

func TestCandidates(t *testing.T) {
	port := cluster.ServicePort{Name: "http", Protocol: cluster.TCP, Port: 80}
	endpoint := func(source, ip string, ready bool, ports ...cluster.EndpointPort) *cluster.Endpoint {
		key := cluster.EndpointKey{Source: source, Addr: addr(ip)}
		return &cluster.Endpoint{EndpointKey: key, Ports: ports, Ready: ready}
	}
	http := func(n uint16) cluster.EndpointPort {
		return cluster.EndpointPort{Name: "http", Protocol: cluster.TCP, Port: n}
	}
	got := candidates(nil, []*cluster.Endpoint{
		endpoint("a", "10.0.0.2", true, http(8080)),
		endpoint("a", "10.0.0.1", false, http(8080)),
		endpoint("b", "10.0.0.1", true, http(8080)), // a higher rank
		endpoint("b", "10.0.0.1", true, http(9090)),
		endpoint("b", "10.0.0.3", true, cluster.EndpointPort{Name: "http", Protocol: cluster.UDP, Port: 80}),
		endpoint("b", "10.0.0.4", true, cluster.EndpointPort{Name: "https", Protocol: cluster.TCP, Port: 443}),
		endpoint("b", "10.0.0.5", true, http(0)),   // all ports
		endpoint("b", "fd00::1", true, http(8080)), // another family
	}, nft.IPv4, port, &cluster.Node{Name: "here"})
	var names []string
	for _, c := range got {
		names = append(names, fmt.Sprintf("%s ready=%v here=%v", c.AddrPort(), c.Ready, c.Here))
	}
	want := []string{
		"10.0.0.1:8080 ready=true here=true", "10.0.0.1:9090 ready=true here=true",
		"10.0.0.2:8080 ready=true here=true", "10.0.0.5:80 ready=true here=true",
	}
	if !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

// An endpoint in several sources has the highest of its weights. The weight of
// other ports does not count.
func TestWeightInSeveralSources(t *testing.T) {
	endpoint := func(source string, port uint16, weight int, ready bool) *cluster.Endpoint {
		return &cluster.Endpoint{
			EndpointKey: cluster.EndpointKey{Source: source, Addr: addr("10.0.0.1")}, Ready: ready,
			Ports:  []cluster.EndpointPort{{Protocol: cluster.TCP, Port: port}},
			Weight: cluster.WeightOf(weight),
		}
	}
	got := candidates(nil, []*cluster.Endpoint{
		endpoint("a", 80, 3, true), endpoint("b", 80, 0, true), endpoint("c", 80, 7, false),
		endpoint("d", 81, 0, true), endpoint("e", 82, 9, true),
	}, nft.IPv4, port80, &cluster.Node{})
	var weights []int
	for _, c := range got {
		weights = append(weights, c.Target.Weight.Int())
	}
	if want := []int{7, 0, 9}; !slices.Equal(weights, want) || !got[0].Ready {
		t.Errorf("got weights %v, ready %v; want %v, true", weights, got[0].Ready, want)
	}
}

// targetsFrom returns targets with these last bytes of their addresses.
func targetsFrom(lastBytes string) []Target {
	var out []Target
	for _, l := range strings.Fields(lastBytes) {
		out = append(out, Target{Addr: addr("10.244.0." + l), Port: 80})
	}
	return out
}

// After random changes, every target has one index, and the number of changed
// indexes is at most the number of added or of removed targets.
func TestArrangeRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var before, now []Target
		for _, l := range r.Perm(12) {
			x := Target{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(l)}), Port: 80}
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
			t.Fatalf("arrange(%s, %s): got %s", lastBytes(before), lastBytes(now), lastBytes(got))
		}
		changed, added, removed := 0, 0, 0
		for i := range min(len(before), len(got)) {
			if before[i] != got[i] {
				changed++
			}
		}
		for _, x := range now {
			if !slices.Contains(before, x) {
				added++
			}
		}
		for _, x := range before {
			if !slices.Contains(now, x) {
				removed++
			}
		}
		if changed > max(added, removed) {
			t.Fatalf("arrange(%s, %s): got %s with %d changed indexes, want at most %d",
				lastBytes(before), lastBytes(now), lastBytes(got), changed, max(added, removed))
		}
	}
}
