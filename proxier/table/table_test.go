package table

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// committedPlan returns the committed plan of the first port of a Service.
func committedPlan(b *Table, name cluster.ServiceName) *ruleset.Plan {
	return b.committed.plans[b.desired.services[name].ports[0]]
}

// affinitySetOf returns the name of the set of a Service's clients.
func affinitySetOf(b *Table, name cluster.ServiceName) string {
	return b.rules.AffinitySet(committedPlan(b, name)).Name
}

// refusedNames returns the names of the service ports that are left out, sorted.
func refusedNames(b *Table) []string {
	var names []string
	for p := range b.refusals {
		names = append(names, p.name())
	}
	slices.Sort(names)
	return names
}

func TestNothingBeforeSetup(t *testing.T) {
	b := unconnected(t, sampleConfig(), nft.IPv4)
	if err := b.Sync(); err == nil {
		t.Error("Sync without Setup is no error")
	}
}

// A process that starts on the table of the one before keeps clients with their endpoints, and leaves the same table.
func TestRestart(t *testing.T) {
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		t.Run(f.String(), func(t *testing.T) {
			tabletest.NewNamespace(t)
			first := newTable(t, sampleConfig(), f)
			tabletest.PassSample(first)
			tabletest.Sync(t, first)
			// Endpoints come and go, so that ids are not what a fresh table gives.
			sticky := cluster.ServiceName{Namespace: "default", Name: "sticky"}
			more := func(last string) *cluster.Endpoint {
				e := tabletest.Endpoint("10.244.1." + last)
				if f == nft.IPv6 {
					e.Addr = addr("fd00:244:1::" + last)
				}
				return e
			}
			first.SetEndpoint(sticky, more("1"))
			tabletest.Sync(t, first)
			first.DeleteEndpoint(sticky, more("1").EndpointKey)
			first.SetEndpoint(sticky, more("2"))
			tabletest.Sync(t, first)
			client := map[nft.Family]string{nft.IPv4: "198.51.100.7", nft.IPv6: "2001:db8:51::7"}[f]
			set := affinitySetOf(first, sticky)
			tabletest.NFT(t, "", "add", "element", f.String(), ruleset.TableName, set, "{ "+client+" . 4099 timeout 1h }")
			before := list(t, f)

			second := newTable(t, sampleConfig(), f)
			tabletest.PassSample(second)
			second.SetEndpoint(sticky, more("2"))
			tabletest.Sync(t, second)
			if after := list(t, f); !slices.Equal(ruleless(before), ruleless(after)) {
				t.Errorf("the table changed:\n%s", difference(ruleless(before), ruleless(after)))
			}
			// 4099 was the last id. Its endpoint goes, and its clients stay in the set over another restart.
			second.DeleteEndpoint(sticky, more("2").EndpointKey)
			tabletest.Sync(t, second)
			third := newTable(t, sampleConfig(), f)
			tabletest.PassSample(third)
			third.SetEndpoint(sticky, more("3"))
			tabletest.Sync(t, third)
			checkTableBut(t, third, set)
			for _, target := range committedPlan(third, sticky).Cluster {
				if old := target.ID == 4096 || target.ID == 4097; !old && target.ID < 2*idBlock {
					t.Errorf("%s got id %d, which was given before", target.AddrPort, target.ID)
				}
			}
		})
	}
}

// Neither a refusal, nor a failed commit, nor a Reset makes endpoints lose their ids, and so their clients.
func TestRestartWithTrouble(t *testing.T) {
	tabletest.NewNamespace(t)
	first := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(first)
	tabletest.Sync(t, first)
	ids := func(b *Table) []ruleset.Target {
		return committedPlan(b, cluster.ServiceName{Namespace: "default", Name: "sticky"}).Cluster
	}
	want := ids(first)

	second := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(second)
	bad := tabletest.Service(strings.Repeat("x", 300), "10.96.0.66", func(s *cluster.Service) { s.AffinityTimeout = time.Hour })
	second.SetService(bad)
	second.SetEndpoint(bad.Name, tabletest.Endpoint("10.244.0.66"))
	if err := second.Fprint(io.Discard); err != nil {
		t.Fatal(err)
	}
	k := injectFaults(second)
	k.FailCommits()
	if err := second.Sync(); !errors.Is(err, tabletest.ErrCommit) {
		t.Fatal(err)
	}
	k.OnCommit = nil
	tabletest.Sync(t, second)
	if got := ids(second); !slices.Equal(got, want) {
		t.Errorf("after a restart: %v, want %v", got, want)
	}
	second.Reset()
	tabletest.PassSample(second)
	tabletest.Sync(t, second)
	if got := ids(second); !slices.Equal(got, want) {
		t.Errorf("after a Reset: %v, want %v", got, want)
	}
}

// ruleless returns the blocks of a listing without chains of session affinity,
// whose rules can be in another order, and without the reserved ids.
func ruleless(listing []string) []string {
	return slices.DeleteFunc(slices.Clone(listing), func(b string) bool {
		return strings.HasPrefix(b, "chain affinity.") || strings.HasPrefix(b, "set reserved-affinity-ids ")
	})
}

// checkTableBut is checkTable without one set.
func checkTableBut(t *testing.T, b *Table, set string) {
	t.Helper()
	without := func(blocks []string) []string {
		return slices.DeleteFunc(blocks, func(b string) bool { return strings.HasPrefix(b, "set "+set+" {") })
	}
	want, got := without(fresh(t, b)), without(withoutIdle(list(t, b.Family())))
	if !slices.Equal(want, got) {
		t.Errorf("the table is not as if written fresh:\n%s", difference(want, got))
	}
}

// A table of another shape is replaced as a whole: in one transaction if packets
// get to it. The garbage collector may need another one, for chains that nothing
// leads to.
func TestTakeOver(t *testing.T) {
	firstDesign, err := os.ReadFile("testdata/first-design-ipv4.nft")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		text   string
		hooked bool // packets get to it
	}{
		"kube-proxy's": {`table ip kube-proxy {
			set cluster-ips { type ipv4_addr; comment "Active ClusterIPs"; elements = { 10.96.0.1 } }
			map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; elements = { 10.96.0.1 . tcp . 80 : goto service-X } }
			chain nat-prerouting { type nat hook prerouting priority dstnat; jump services; }
			chain services { ip daddr . meta l4proto . th dport vmap @service-ips; }
			chain service-X { numgen random mod 1 vmap { 0 : goto endpoint-X }; }
			chain endpoint-X { meta l4proto tcp dnat to 10.244.0.1:80; }
		}`, true},
		"first design": {string(firstDesign), true},
		"not hooked":   {"table ip kube-proxy {\n chain services { drop; }\n chain other { jump services; }\n }", false},
		"types of its own": {`table ip kube-proxy {
			set service-endpoints { type ipv4_addr; }
			chain nat-prerouting { type nat hook prerouting priority dstnat; }
		}`, true},
		"hooks of its own": {`table ip kube-proxy {
			map service-endpoints { typeof ip daddr . meta l4proto . th dport . numgen random mod 1 : ip daddr . th dport; }
			chain nat-prerouting { type filter hook input priority 5; }
		}`, true},
		"empty": {`table ip kube-proxy { }`, false},
	} {
		t.Run(name, func(t *testing.T) {
			tabletest.NewNamespace(t)
			tabletest.LoadNFT(t, tt.text)
			b := newTable(t, sampleConfig(), nft.IPv4)
			tabletest.PassSample(b)
			var generations []uint32
			var listings [][]string
			k := injectFaults(b)
			k.OnCommit = func(_ *nft.Batch, commit func() error) error {
				if err := commit(); err != nil {
					return err
				}
				now, err := k.Generation()
				generations, listings = append(generations, now), append(listings, list(t, nft.IPv4))
				return err
			}
			before, err := k.Generation()
			if err != nil {
				t.Fatal(err)
			}
			tabletest.Sync(t, b)
			checkTable(t, b)
			if !tt.hooked {
				return
			}
			if want := nft.NextGeneration(before); generations[0] != want {
				t.Errorf("the first commit moved the generation from %d to %d, want %d", before, generations[0], want)
			}
			if want, got := fresh(t, b), withoutIdle(listings[0]); !slices.Equal(got, want) {
				t.Errorf("after the first commit the table is not as if written fresh:\n%s", difference(want, got))
			}
		})
	}
}

// kube-proxy deletes chains whose names contain a slash and sets whose names begin
// with "affinity-", which it takes for stale ones of its own (isServiceChainName
// and isAffinitySetName in its proxier.go). Its transactions would fail as long as
// rules or rows of ours refer to them.
func TestNamesThatKubeProxyDeletes(t *testing.T) {
	tabletest.NewNamespace(t)
	b := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(b)
	tabletest.Sync(t, b)
	sets, err := b.kernel.Sets(b.committed.program)
	if err != nil {
		t.Fatal(err)
	}
	chains, err := b.kernel.Chains(b.committed.program)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sets {
		if strings.HasPrefix(s.Name, "affinity-") {
			t.Errorf("set %s", s.Name)
		}
	}
	for _, c := range chains {
		if strings.Contains(c.Name, "/") {
			t.Errorf("chain %s", c.Name)
		}
	}
}

// What the kernel refuses is left out and named once; the others are served; it comes back when it is sound.
func TestRefused(t *testing.T) {
	tabletest.NewNamespace(t)
	var recorded tabletest.Events
	config := sampleConfig()
	config.Events = &recorded
	b := newTable(t, config, nft.IPv4)
	b.SetNode(tabletest.Node())
	// Chains are named after services with affinity, and the kernel takes names of up to 255 bytes.
	bad := tabletest.Service(strings.Repeat("x", 300), "10.96.0.66", func(s *cluster.Service) { s.AffinityTimeout = time.Hour })
	for i := range 5 {
		svc := tabletest.Service(fmt.Sprint("good", i), fmt.Sprint("10.96.0.", i), nil)
		b.SetService(svc)
		b.SetEndpoint(svc.Name, tabletest.Endpoint(fmt.Sprint("10.244.0.", i)))
	}
	b.SetService(bad)
	b.SetEndpoint(bad.Name, tabletest.Endpoint("10.244.0.66"))
	tabletest.Sync(t, b)
	check := func(when string, refused ...string) {
		t.Helper()
		checkTable(t, b)
		if got := refusedNames(b); !slices.Equal(got, refused) {
			t.Errorf("%s: refused are %q, want %q", when, got, refused)
		}
		if got := recorded.Of(cluster.ReasonRefused); len(got) > 1 || b.stats.Refusals != len(got) {
			t.Errorf("%s: events about %q, %d counted; want one", when, got, b.stats.Refusals)
		}
	}
	name := bad.Name.String() + ":http"
	check("first", name)

	good := tabletest.Service("late", "10.96.0.77", nil)
	b.SetService(good)
	b.SetEndpoint(good.Name, tabletest.Endpoint("10.244.0.77"))
	tabletest.Sync(t, b)
	check("another one comes", name)

	rewrites := b.stats.Rewrites
	b.SetEndpoint(bad.Name, tabletest.Endpoint("10.244.0.67"))
	tabletest.Sync(t, b)
	check("it changes, and is still bad", name)
	if err := b.Resync(); err != nil {
		t.Fatal(err)
	}
	check("resync", name)
	if b.stats.Rewrites != rewrites {
		t.Errorf("trying again took %d rewrites", b.stats.Rewrites-rewrites)
	}

	sound := *bad
	sound.AffinityTimeout = 0
	b.SetService(&sound)
	tabletest.Sync(t, b)
	check("the cause is gone")
	if text := tabletest.NFT(t, "", "list", "map", "ip", ruleset.TableName, "service-ips"); !strings.Contains(text, "10.96.0.66 . ") {
		t.Error("the service did not come back")
	}
}

// What was refused comes back by itself with a Resync once the kernel takes it.
func TestRefusedComesBack(t *testing.T) {
	tabletest.NewNamespace(t)
	b := newTable(t, sampleConfig(), nft.IPv4)
	svc := tabletest.Service("svc", "10.96.0.1", nil)
	b.SetService(svc)
	b.SetEndpoint(svc.Name, tabletest.Endpoint("10.244.0.1"))
	sound := false
	port := b.desired.services[svc.Name].ports[0]
	injectFaults(b).OnCommit = func(_ *nft.Batch, commit func() error) error {
		if sound || b.refusals.leftOut(port) {
			return commit()
		}
		return &nft.CommitError{Table: "t", Problems: []nft.Problem{{Op: "add element", Tag: port.tag, Errno: unix.ENOMEM}}}
	}
	resync := func(refused ...string) {
		t.Helper()
		if err := b.Resync(); err != nil {
			t.Fatal(err)
		}
		if got := refusedNames(b); !slices.Equal(got, refused) {
			t.Errorf("refused are %q, want %q", got, refused)
		}
		checkTable(t, b)
	}
	tabletest.Sync(t, b)
	resync("ns/svc:http")
	sound = true
	resync()
}

// Of two services that want the same address and port the older one has it, until it goes.
func TestConflict(t *testing.T) {
	tabletest.NewNamespace(t)
	var recorded tabletest.Events
	config := sampleConfig()
	config.Events = &recorded
	b := newTable(t, config, nft.IPv4)
	want := func(owner string) {
		t.Helper()
		tabletest.Sync(t, b)
		checkTable(t, b)
		out := tabletest.NFT(t, "", "list", "map", "ip", ruleset.TableName, "service-ips")
		// Without /etc/protocols nft prints the protocol as a number.
		if !regexp.MustCompile(`192\.0\.2\.1 \. (tcp|6) \. 80 comment "ns/` + owner + `:http"`).MatchString(out) {
			t.Errorf("want %s to have 192.0.2.1:80:\n%s", owner, out)
		}
	}
	contender := func(name, clusterIP string, created int64) *cluster.Service {
		return tabletest.Service(name, clusterIP, func(s *cluster.Service) {
			s.Created = time.Unix(created, 0)
			s.ExternalIPs = []netip.Addr{addr("192.0.2.1")}
		})
	}
	b.SetService(contender("younger", "10.96.0.1", 200))
	b.SetEndpoint(cluster.ServiceName{Namespace: "ns", Name: "younger"}, tabletest.Endpoint("10.244.0.1"))
	b.SetEndpoint(cluster.ServiceName{Namespace: "ns", Name: "older"}, tabletest.Endpoint("10.244.0.2"))
	want("younger")
	b.SetService(contender("older", "10.96.0.2", 100))
	want("older")
	b.SetService(contender("younger", "10.96.0.1", 200)) // tells no one again
	want("older")
	b.DeleteService(cluster.ServiceName{Namespace: "ns", Name: "older"})
	want("younger")
	b.SetService(contender("older", "10.96.0.2", 300)) // a new Service of the old name
	want("younger")
	if got, want := recorded.Of(cluster.ReasonAddressConflict), []string{"ns/younger", "ns/older"}; !slices.Equal(got, want) {
		t.Errorf("events about %q, want %q", got, want)
	}
}

// A ClusterIP beats a LoadBalancer IP, which beats an external IP, whatever the age
// of the Services. An older Service must not take over the ClusterIP of another.
func TestConflictOfKinds(t *testing.T) {
	tabletest.NewNamespace(t)
	var recorded tabletest.Events
	config := sampleConfig()
	config.Events = &recorded
	b := newTable(t, config, nft.IPv4)
	const contested = "10.96.0.1"
	service := func(name string, created int64, change func(*cluster.Service)) {
		svc := tabletest.Service(name, "", nil)
		svc.Created = time.Unix(created, 0)
		change(svc)
		b.SetService(svc)
		b.SetEndpoint(svc.Name, tabletest.Endpoint("10.244.0.1"))
	}
	want := func(owner string) {
		t.Helper()
		tabletest.Sync(t, b)
		checkTable(t, b)
		out := tabletest.NFT(t, "", "list", "map", "ip", ruleset.TableName, "service-ips")
		if !regexp.MustCompile(`10\.96\.0\.1 \. (tcp|6) \. 80 comment "ns/` + owner + `:http"`).MatchString(out) {
			t.Errorf("want %s to have %s:80:\n%s", owner, contested, out)
		}
	}
	external := func(s *cluster.Service) { s.ExternalIPs = []netip.Addr{addr(contested)} }
	loadBalancer := func(s *cluster.Service) { s.LoadBalancerIPs = []netip.Addr{addr(contested)} }
	clusterIP := func(s *cluster.Service) { s.ClusterIPs = []netip.Addr{addr(contested)} }
	service("external", 100, external)
	want("external")
	service("lb", 200, loadBalancer)
	want("lb")
	service("cluster", 300, clusterIP)
	want("cluster")
	service("older-external", 50, external)
	want("cluster")
	b.DeleteService(cluster.ServiceName{Namespace: "ns", Name: "cluster"})
	want("lb")
	service("lb", 200, external) // the same frontend, with a weaker claim
	want("older-external")
	service("lb", 200, loadBalancer)
	want("lb")
	got := recorded.Of(cluster.ReasonAddressConflict)
	if want := []string{"ns/external", "ns/lb", "ns/older-external", "ns/lb", "ns/older-external"}; !slices.Equal(got, want) {
		t.Errorf("events about %q, want %q", got, want)
	}
}

// Endpoints in a service CIDR are not used and reported once; the other endpoints
// of the Service are.
func TestEndpointsInServiceCIDR(t *testing.T) {
	tabletest.NewNamespace(t)
	var recorded tabletest.Events
	config := sampleConfig()
	config.Events = &recorded
	b := newTable(t, config, nft.IPv4)
	b.SetNode(tabletest.Node())
	svc := tabletest.Service("svc", "10.96.0.1", nil)
	b.SetService(svc)
	b.SetEndpoint(svc.Name, tabletest.Endpoint("10.96.0.2"))
	tabletest.Sync(t, b)
	checkTable(t, b)
	if n := b.committed.rows["no-endpoint-services"]; n != 1 {
		t.Errorf("%d Services without endpoints, want 1", n)
	}
	b.SetEndpoint(svc.Name, tabletest.Endpoint("10.244.0.2"))
	tabletest.Sync(t, b)
	b.SetService(svc)
	tabletest.Sync(t, b)
	checkTable(t, b)
	if n := b.committed.rows["service-endpoints"]; n != 1 {
		t.Errorf("%d endpoints, want 1", n)
	}
	if len(recorded) != 1 || !strings.Contains(recorded[0].Note, "ns/svc") || !strings.Contains(recorded[0].Note, "10.96.0.2") {
		t.Errorf("events %+v, want one", recorded)
	}
	node := tabletest.Node()
	node.ServiceCIDRs = nil // no CIDR is known: nothing is invalid
	b.SetNode(node)
	tabletest.Sync(t, b)
	if n := b.committed.rows["service-endpoints"]; n != 2 {
		t.Errorf("%d endpoints without service CIDRs, want 2", n)
	}
}

// A rewrite replaces sets with intervals: flushing one takes time that grows with
// the square of its rows.
func TestRewriteReplacesIntervalSets(t *testing.T) {
	tabletest.NewNamespace(t)
	b := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(b)
	tabletest.Sync(t, b)
	handles := func() map[string]uint64 {
		found, err := b.kernel.Sets(b.committed.program)
		if err != nil {
			t.Fatal(err)
		}
		all := make(map[string]uint64)
		for _, s := range found {
			all[s.Name] = s.Handle
		}
		return all
	}
	before := handles()
	b.doubt("test")
	tabletest.Sync(t, b)
	checkTable(t, b)
	after := handles()
	for _, s := range b.committed.program.Sets {
		if replaced := before[s.Name] != after[s.Name]; replaced != s.Interval {
			t.Errorf("set %s was replaced: %v, want %v", s.Name, replaced, s.Interval)
		}
	}
	check(t, b)
	if repairsOf(b) != 0 {
		t.Error("our own rewrite was repaired")
	}
}

// What is told one after the other is one change: there is no conflict between what was and what will be. A conflict of both families is
// told once.
func TestConflictsOfOneChange(t *testing.T) {
	tabletest.NewNamespace(t)
	var recorded tabletest.Events
	config := sampleConfig()
	config.Events = &recorded
	tables, err := New(config, nft.IPv4, nft.IPv6)
	if err != nil {
		t.Fatal(err)
	}
	sink := cluster.Sinks{tables[0], tables[1]}
	if err := sink.Setup(); err != nil {
		t.Fatal(err)
	}
	service := func(name string, ports ...cluster.ServicePort) *cluster.Service {
		return tabletest.Service(name, "10.96.0.1", func(s *cluster.Service) {
			s.Families, s.Ports = []nft.Family{nft.IPv4, nft.IPv6}, ports
		})
	}
	port := func(name string, port, nodePort uint16) cluster.ServicePort {
		return cluster.ServicePort{Name: name, Protocol: cluster.TCP, Port: port, NodePort: nodePort}
	}
	a, b := port("a", 80, 30001), port("b", 81, 30002)
	step := func(what string, events int) {
		t.Helper()
		tabletest.Sync(t, sink)
		if len(recorded) != events {
			t.Errorf("%s: %d events, want %d: %v", what, len(recorded), events, recorded)
		}
	}
	sink.SetService(service("before", a, b))
	step("one service", 0)
	sink.SetService(service("after", a, b))
	sink.DeleteService(cluster.ServiceName{Namespace: "ns", Name: "before"})
	step("renamed", 0)
	a.NodePort, b.NodePort = b.NodePort, a.NodePort
	sink.SetService(service("after", a, b))
	step("NodePorts swapped", 0)
	other := service("other", port("c", 90, 30001))
	other.ClusterIPs = nil
	sink.SetService(other)
	step("NodePort of another", 1)
	sink.SetService(other)
	step("again", 1)
}

// Whatever a Service becomes, it leaves nothing behind of what it was.
func TestTypeChanges(t *testing.T) {
	tabletest.NewNamespace(t)
	b := newTable(t, sampleConfig(), nft.IPv4)
	name := cluster.ServiceName{Namespace: "ns", Name: "svc"}
	b.SetEndpoint(name, tabletest.Endpoint("10.244.0.1"))
	b.SetEndpoint(name, tabletest.Endpoint("10.244.0.2"))
	tabletest.Sync(t, b)
	empty := list(t, nft.IPv4)
	for i, change := range []func(*cluster.Service){
		nil,
		func(s *cluster.Service) { s.Ports[0].NodePort = 30080 },
		func(s *cluster.Service) {
			s.Ports[0].NodePort = 30080
			s.LoadBalancerIPs, s.SourceRanges = []netip.Addr{addr("192.0.2.1")}, []netip.Prefix{prefix("10.0.0.0/8")}
			s.ExternalPolicy = cluster.PolicyLocal
		},
		func(s *cluster.Service) { s.AffinityTimeout, s.Ports[0].NodePort = time.Hour, 30080 },
		func(s *cluster.Service) { s.AffinityTimeout, s.InternalPolicy = time.Hour, cluster.PolicyLocal },
		func(s *cluster.Service) { s.Ports[0].Protocol = cluster.UDP },
	} {
		b.SetService(tabletest.Service("svc", "10.96.0.1", change))
		tabletest.Sync(t, b)
		checkTable(t, b)
		b.DeleteService(name)
		tabletest.Sync(t, b)
		got, want := ruleless(withoutIdle(list(t, nft.IPv4))), ruleless(empty)
		if !slices.Equal(got, want) {
			t.Errorf("step %d left something behind:\n%s", i, difference(want, got))
		}
	}
	d, c := &b.desired, b.committed
	if len(d.ports)+len(d.claims.owners)+len(c.plans)+len(c.shared)+len(b.unused) != 0 {
		t.Errorf("left: %d ports, %d frontends, %d plans, %d shared rows, %d unused chains",
			len(d.ports), len(d.claims.owners), len(c.plans), len(c.shared), len(b.unused))
	}
}

// Reset forgets everything; what is told anew replaces what is in the kernel.
func TestReset(t *testing.T) {
	tabletest.NewNamespace(t)
	b := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(b)
	tabletest.Sync(t, b)
	b.Reset()
	svc := tabletest.Service("only", "10.96.0.1", nil)
	b.SetService(svc)
	b.SetEndpoint(svc.Name, tabletest.Endpoint("10.244.0.1"))
	tabletest.Sync(t, b)
	checkTable(t, b)
}

// A table that other programs leave alone is not written again when they change theirs.
func TestOthersTables(t *testing.T) {
	tabletest.NewNamespace(t)
	b := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(b)
	tabletest.Sync(t, b)
	rewrites := b.stats.Rewrites
	for range 3 {
		tabletest.LoadNFT(t, "add table ip other")
		svc := tabletest.Service("svc", "10.96.0.99", nil)
		b.SetService(svc)
		tabletest.Sync(t, b)
		tabletest.LoadNFT(t, "delete table ip other")
		b.DeleteService(svc.Name)
		if err := b.Check(); err != nil {
			t.Fatal(err)
		}
		tabletest.Sync(t, b)
	}
	checkTable(t, b)
	if b.stats.Rewrites != rewrites {
		t.Errorf("%d rewrites", b.stats.Rewrites-rewrites)
	}
}

// What could not be committed is not taken for done.
func TestCommitBeforeRemembering(t *testing.T) {
	tabletest.NewNamespace(t)
	b := newTable(t, sampleConfig(), nft.IPv4)
	tabletest.PassSample(b)
	tabletest.Sync(t, b)
	k := injectFaults(b)
	k.FailCommits()
	b.SetService(tabletest.Service("svc", "10.96.0.99", nil))
	b.DeleteService(cluster.ServiceName{Namespace: "default", Name: "web"})
	if err := b.Sync(); !errors.Is(err, tabletest.ErrCommit) {
		t.Fatalf("got %v, want %v", err, tabletest.ErrCommit)
	}
	k.OnCommit = nil
	tabletest.Sync(t, b)
	checkTable(t, b)
}
