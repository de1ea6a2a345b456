package ruleset

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// endpointsFrom parses endpoints that are separated by spaces. Each is
// last-byte[@node][,conditions][,word]…: r means ready, s serving, t
// terminating, z:a a hint for zone a, n:x a hint for node x, e:a the source a,
// w:2 weight 2, p:81 port 81, p:udp/81 and p:name/81 another protocol or name,
// p: no port.
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
			kind, value, hasValue := strings.Cut(p, ":")
			if e.Hints == nil && (kind == "z" || kind == "n") {
				e.Hints = new(cluster.Hints)
			}
			switch {
			case !hasValue:
				e.Ready, e.Serving = strings.Contains(p, "r"), strings.Contains(p, "s")
				e.Terminating = strings.Contains(p, "t")
			case kind == "z":
				e.Hints.Zones = append(e.Hints.Zones, value)
			case kind == "n":
				e.Hints.Nodes = append(e.Hints.Nodes, value)
			case kind == "e":
				e.Source = value
			case kind == "w":
				weight, _ := strconv.Atoi(value)
				e.Weight = cluster.WeightOf(weight)
			case kind == "p" && value == "":
				e.Ports = nil
			case kind == "p":
				e.Ports = []cluster.EndpointPort{portFrom(value)}
			}
		}
		out = append(out, e)
	}
	return out
}

func portFrom(text string) cluster.EndpointPort {
	name, number, named := strings.Cut(text, "/")
	if !named {
		name, number = "", text
	}
	n, _ := strconv.Atoi(number)
	p := cluster.EndpointPort{Name: name, Protocol: cluster.TCP, Port: uint16(n)}
	if name == "udp" {
		p.Name, p.Protocol = "", cluster.UDP
	}
	return p
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

// A plan has exactly the endpoints that are used.
func TestUsesOfPlans(t *testing.T) {
	rules := newRuleset(t, Config{}, nft.IPv4)
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	for range 5000 {
		var specs []string
		for range random.IntN(5) {
			specs = append(specs, fmt.Sprint(96+random.IntN(4))+pick("", "@here", "@other")+","+
				pick("rs", "rs", "s", "st", "t", "")+pick("", ",z:a", ",z:b", ",z:a,n:here", ",z:a,n:other"))
		}
		in := PlanInput{
			Node: &cluster.Node{Name: "here", Zone: pick("", "a"), ServiceCIDRs: prefixes("10.244.0.96/32")},
			Service: &cluster.Service{
				Families: []nft.Family{nft.IPv4}, ClusterIPs: []netip.Addr{addr("10.96.0.1")},
				InternalPolicy: cluster.PolicyLocal,
			},
			Port: port80, Endpoints: endpointsFrom(strings.Join(specs, " ")),
		}
		plan := planOf(t, rules, in)
		var inCluster, local int
		for _, u := range EndpointUses(nft.IPv4, &in) {
			at := Target{Addr: u.Addr, Port: u.Port}.AddrPort()
			if u.Cluster == "" {
				inCluster++
			}
			if u.Local == "" {
				local++
			}
			if u.Cluster == "" && !addrPorts(plan.Cluster)[at] || u.Local == "" && !addrPorts(plan.Local)[at] {
				t.Errorf("%q: endpoint %s is used, but not in the plan", specs, at)
			}
		}
		if inCluster != len(plan.Cluster) || local != len(plan.Local) {
			t.Errorf("%q: got %d and %d used endpoints, want %d and %d",
				specs, inCluster, local, len(plan.Cluster), len(plan.Local))
		}
	}
}

func addrPorts(targets []Target) map[netip.AddrPort]bool {
	set := make(map[netip.AddrPort]bool, len(targets))
	for _, t := range targets {
		set[t.AddrPort()] = true
	}
	return set
}
