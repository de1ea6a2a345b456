package proxier

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
)

// events records what is told about Services.
type events []Event

func (e *events) Record(ev Event) { *e = append(*e, ev) }

// of returns the objects of the events with this reason.
func (e *events) of(reason string) []string {
	var out []string
	for _, ev := range *e {
		if ev.Reason == reason {
			out = append(out, ev.Namespace+"/"+ev.Name)
		}
	}
	return out
}

// simpleService returns an IPv4 Service with one port, and without a ClusterIP if
// clusterIP is empty.
func simpleService(name, clusterIP string, change func(*Service)) *Service {
	svc := &Service{
		Name: ServiceName{"ns", name}, Families: []nft.Family{nft.IPv4},
		Ports: []ServicePort{{Name: "http", Protocol: TCP, Port: 80}},
	}
	if clusterIP != "" {
		svc.ClusterIPs = []netip.Addr{addr(clusterIP)}
	}
	if change != nil {
		change(svc)
	}
	return svc
}

func simpleEndpoint(ip string) *Endpoint {
	return &Endpoint{
		EndpointKey: EndpointKey{Source: "s", Addr: addr(ip)}, Node: "node1", Ready: true, Serving: true,
		Ports: []EndpointPort{{Name: "http", Protocol: TCP, Port: 8080}},
	}
}

func TestNothingBeforeSetup(t *testing.T) {
	b, err := NewBackend(sampleConfig(), nft.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Sync(); err == nil {
		t.Error("Sync without Setup is no error")
	}
}

// A process that starts on the table of the one before keeps clients with their endpoints, and leaves the same table.
func TestRestart(t *testing.T) {
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		t.Run(f.String(), func(t *testing.T) {
			newNamespace(t)
			first := newBackend(t, sampleConfig(), f)
			tellSample(first)
			mustSync(t, first)
			// Endpoints come and go, so that ids are not what a fresh table gives.
			sticky := ServiceName{"default", "sticky"}
			more := func(last string) *Endpoint {
				e := simpleEndpoint("10.244.1." + last)
				if f == nft.IPv6 {
					e.Addr = addr("fd00:244:1::" + last)
				}
				return e
			}
			first.SetEndpoint(sticky, more("1"))
			mustSync(t, first)
			first.DeleteEndpoint(sticky, more("1").EndpointKey)
			first.SetEndpoint(sticky, more("2"))
			mustSync(t, first)
			client := map[nft.Family]string{nft.IPv4: "198.51.100.7", nft.IPv6: "2001:db8:51::7"}[f]
			set := first.layout.affinitySet("default.sticky.tcp.http").Name
			runNFT(t, "", "add", "element", f.String(), TableName, set, "{ "+client+" . 4099 timeout 1h }")
			before := list(t, f)

			second := newBackend(t, sampleConfig(), f)
			tellSample(second)
			second.SetEndpoint(sticky, more("2"))
			mustSync(t, second)
			if after := list(t, f); !slices.Equal(ruleless(before), ruleless(after)) {
				t.Errorf("the table changed:\n%s", difference(ruleless(before), ruleless(after)))
			}
			// 4099 was the last id. Its endpoint goes, and its clients stay in the set over another restart.
			second.DeleteEndpoint(sticky, more("2").EndpointKey)
			mustSync(t, second)
			third := newBackend(t, sampleConfig(), f)
			tellSample(third)
			third.SetEndpoint(sticky, more("3"))
			mustSync(t, third)
			checkTableBut(t, third, set)
			for _, target := range third.services[sticky].ports[0].committed.cluster {
				if old := target.id == 4096 || target.id == 4097; !old && target.id < 2*idBlock {
					t.Errorf("%s got id %d, which was given before", target.AddrPort, target.id)
				}
			}
		})
	}
}

// Neither a refusal, nor a failed commit, nor a Reset makes endpoints lose their ids, and so their clients.
func TestRestartWithTrouble(t *testing.T) {
	newNamespace(t)
	first := newBackend(t, sampleConfig(), nft.IPv4)
	tellSample(first)
	mustSync(t, first)
	ids := func(b *Backend) []target {
		return b.services[ServiceName{"default", "sticky"}].ports[0].committed.cluster
	}
	want := ids(first)

	second := newBackend(t, sampleConfig(), nft.IPv4)
	tellSample(second)
	bad := simpleService(strings.Repeat("x", 300), "10.96.0.66", func(s *Service) { s.AffinityTimeout = time.Hour })
	second.SetService(bad)
	second.SetEndpoint(bad.Name, simpleEndpoint("10.244.0.66"))
	if err := second.Fprint(io.Discard); err != nil {
		t.Fatal(err)
	}
	sound := second.kernel
	second.kernel = failing{sound}
	if err := second.Sync(); !errors.Is(err, errFailing) {
		t.Fatal(err)
	}
	second.kernel = sound
	mustSync(t, second)
	if got := ids(second); !slices.Equal(got, want) {
		t.Errorf("after a restart: %v, want %v", got, want)
	}
	second.Reset()
	tellSample(second)
	mustSync(t, second)
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
func checkTableBut(t *testing.T, b *Backend, set string) {
	t.Helper()
	without := func(blocks []string) []string {
		return slices.DeleteFunc(blocks, func(b string) bool { return strings.HasPrefix(b, "set "+set+" {") })
	}
	want, got := without(fresh(t, b)), without(withoutIdle(list(t, b.layout.family)))
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
			newNamespace(t)
			runNFT(t, tt.text, "-f", "-")
			b := newBackend(t, sampleConfig(), nft.IPv4)
			tellSample(b)
			k := &watched{kernel: b.kernel, t: t}
			b.kernel = k
			before, err := k.Generation()
			if err != nil {
				t.Fatal(err)
			}
			mustSync(t, b)
			checkTable(t, b)
			if !tt.hooked {
				return
			}
			if want := nft.NextGeneration(before); k.generations[0] != want {
				t.Errorf("the first commit moved the generation from %d to %d, want %d", before, k.generations[0], want)
			}
			if want, got := fresh(t, b), withoutIdle(k.listings[0]); !slices.Equal(got, want) {
				t.Errorf("after the first commit the table is not as if written fresh:\n%s", difference(want, got))
			}
		})
	}
}

// watched records what every commit leaves.
type watched struct {
	kernel
	t           testing.TB
	generations []uint32
	listings    [][]string
}

func (k *watched) Commit(b *nft.Batch) error {
	if err := k.kernel.Commit(b); err != nil {
		return err
	}
	now, err := k.Generation()
	if err != nil {
		k.t.Fatal(err)
	}
	k.generations = append(k.generations, now)
	k.listings = append(k.listings, list(k.t, nft.IPv4))
	return nil
}

// kube-proxy deletes chains whose names contain a slash and sets whose names begin
// with "affinity-", which it takes for stale ones of its own (isServiceChainName
// and isAffinitySetName in its proxier.go). Its transactions would fail as long as
// rules or rows of ours refer to them.
func TestNamesThatKubeProxyDeletes(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	tellSample(b)
	mustSync(t, b)
	sets, err := b.kernel.Sets(b.have.table)
	if err != nil {
		t.Fatal(err)
	}
	chains, err := b.kernel.Chains(b.have.table)
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
	newNamespace(t)
	var recorded events
	config := sampleConfig()
	config.Events = &recorded
	b := newBackend(t, config, nft.IPv4)
	b.SetNode(sampleNode())
	// Chains are named after services with affinity, and the kernel takes names of up to 255 bytes.
	bad := simpleService(strings.Repeat("x", 300), "10.96.0.66", func(s *Service) { s.AffinityTimeout = time.Hour })
	for i := range 5 {
		svc := simpleService(fmt.Sprint("good", i), fmt.Sprint("10.96.0.", i), nil)
		b.SetService(svc)
		b.SetEndpoint(svc.Name, simpleEndpoint(fmt.Sprint("10.244.0.", i)))
	}
	b.SetService(bad)
	b.SetEndpoint(bad.Name, simpleEndpoint("10.244.0.66"))
	mustSync(t, b)
	check := func(when string, refused ...string) {
		t.Helper()
		checkTable(t, b)
		if got := b.Refused(); !slices.Equal(got, refused) {
			t.Errorf("%s: refused are %q, want %q", when, got, refused)
		}
		if got := recorded.of(ReasonRefused); len(got) > 1 || b.stats.Refusals != len(got) {
			t.Errorf("%s: events about %q, %d counted; want one", when, got, b.stats.Refusals)
		}
	}
	name := bad.Name.String() + ":http"
	check("first", name)

	good := simpleService("late", "10.96.0.77", nil)
	b.SetService(good)
	b.SetEndpoint(good.Name, simpleEndpoint("10.244.0.77"))
	mustSync(t, b)
	check("another one comes", name)

	rewrites := b.stats.Rewrites
	b.SetEndpoint(bad.Name, simpleEndpoint("10.244.0.67"))
	mustSync(t, b)
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
	mustSync(t, b)
	check("the cause is gone")
	if text := runNFT(t, "", "list", "map", "ip", TableName, "service-ips"); !strings.Contains(text, "10.96.0.66 . ") {
		t.Error("the service did not come back")
	}
}

// refusing refuses a service port as long as it is not sound.
type refusing struct {
	kernel
	port  *portState
	sound bool
}

func (k *refusing) Commit(b *nft.Batch) error {
	if k.sound || k.port.refused != nil || k.port.gone {
		return k.kernel.Commit(b)
	}
	return &nft.CommitError{Table: "t", Problems: []nft.Problem{{Op: "add element", Tag: k.port.tag, Errno: unix.ENOMEM}}}
}

// What was refused comes back by itself with a Resync once the kernel takes it.
func TestRefusedComesBack(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	svc := simpleService("svc", "10.96.0.1", nil)
	b.SetService(svc)
	b.SetEndpoint(svc.Name, simpleEndpoint("10.244.0.1"))
	k := &refusing{kernel: b.kernel, port: b.services[svc.Name].ports[0]}
	b.kernel = k
	resync := func(refused ...string) {
		t.Helper()
		if err := b.Resync(); err != nil {
			t.Fatal(err)
		}
		if got := b.Refused(); !slices.Equal(got, refused) {
			t.Errorf("refused are %q, want %q", got, refused)
		}
		checkTable(t, b)
	}
	mustSync(t, b)
	resync("ns/svc:http")
	k.sound = true
	resync()
}

// Of two services that want the same address and port the older one has it, until it goes.
func TestConflict(t *testing.T) {
	newNamespace(t)
	var recorded events
	config := sampleConfig()
	config.Events = &recorded
	b := newBackend(t, config, nft.IPv4)
	want := func(owner string) {
		t.Helper()
		mustSync(t, b)
		checkTable(t, b)
		out := runNFT(t, "", "list", "map", "ip", TableName, "service-ips")
		// Without /etc/protocols nft prints the protocol as a number.
		if !regexp.MustCompile(`192\.0\.2\.1 \. (tcp|6) \. 80 comment "ns/` + owner + `:http"`).MatchString(out) {
			t.Errorf("want %s to have 192.0.2.1:80:\n%s", owner, out)
		}
	}
	contender := func(name, clusterIP string, created int64) *Service {
		return simpleService(name, clusterIP, func(s *Service) {
			s.Created = time.Unix(created, 0)
			s.ExternalIPs = []netip.Addr{addr("192.0.2.1")}
		})
	}
	b.SetService(contender("younger", "10.96.0.1", 200))
	b.SetEndpoint(ServiceName{"ns", "younger"}, simpleEndpoint("10.244.0.1"))
	b.SetEndpoint(ServiceName{"ns", "older"}, simpleEndpoint("10.244.0.2"))
	want("younger")
	b.SetService(contender("older", "10.96.0.2", 100))
	want("older")
	b.SetService(contender("younger", "10.96.0.1", 200)) // tells no one again
	want("older")
	b.DeleteService(ServiceName{"ns", "older"})
	want("younger")
	b.SetService(contender("older", "10.96.0.2", 300)) // a new Service of the old name
	want("younger")
	if got, want := recorded.of(ReasonAddressConflict), []string{"ns/younger", "ns/older"}; !slices.Equal(got, want) {
		t.Errorf("events about %q, want %q", got, want)
	}
}

// A ClusterIP beats a LoadBalancer IP, which beats an external IP, whatever the age
// of the Services. An older Service must not take over the ClusterIP of another.
func TestConflictOfKinds(t *testing.T) {
	newNamespace(t)
	var recorded events
	config := sampleConfig()
	config.Events = &recorded
	b := newBackend(t, config, nft.IPv4)
	const contested = "10.96.0.1"
	service := func(name string, created int64, change func(*Service)) {
		svc := simpleService(name, "", nil)
		svc.Created = time.Unix(created, 0)
		change(svc)
		b.SetService(svc)
		b.SetEndpoint(svc.Name, simpleEndpoint("10.244.0.1"))
	}
	want := func(owner string) {
		t.Helper()
		mustSync(t, b)
		checkTable(t, b)
		out := runNFT(t, "", "list", "map", "ip", TableName, "service-ips")
		if !regexp.MustCompile(`10\.96\.0\.1 \. (tcp|6) \. 80 comment "ns/` + owner + `:http"`).MatchString(out) {
			t.Errorf("want %s to have %s:80:\n%s", owner, contested, out)
		}
	}
	external := func(s *Service) { s.ExternalIPs = []netip.Addr{addr(contested)} }
	loadBalancer := func(s *Service) { s.LoadBalancerIPs = []netip.Addr{addr(contested)} }
	cluster := func(s *Service) { s.ClusterIPs = []netip.Addr{addr(contested)} }
	service("external", 100, external)
	want("external")
	service("lb", 200, loadBalancer)
	want("lb")
	service("cluster", 300, cluster)
	want("cluster")
	service("older-external", 50, external)
	want("cluster")
	b.DeleteService(ServiceName{"ns", "cluster"})
	want("lb")
	service("lb", 200, external) // the same frontend, with a weaker claim
	want("older-external")
	service("lb", 200, loadBalancer)
	want("lb")
	got := recorded.of(ReasonAddressConflict)
	if want := []string{"ns/external", "ns/lb", "ns/older-external", "ns/lb", "ns/older-external"}; !slices.Equal(got, want) {
		t.Errorf("events about %q, want %q", got, want)
	}
}

// Endpoints in a service CIDR are not used and reported once; the other endpoints
// of the Service are.
func TestEndpointsInServiceCIDR(t *testing.T) {
	newNamespace(t)
	var recorded events
	config := sampleConfig()
	config.Events = &recorded
	b := newBackend(t, config, nft.IPv4)
	b.SetNode(sampleNode())
	svc := simpleService("svc", "10.96.0.1", nil)
	b.SetService(svc)
	b.SetEndpoint(svc.Name, simpleEndpoint("10.96.0.2"))
	mustSync(t, b)
	checkTable(t, b)
	if n := b.have.rows["no-endpoint-services"]; n != 1 {
		t.Errorf("%d Services without endpoints, want 1", n)
	}
	b.SetEndpoint(svc.Name, simpleEndpoint("10.244.0.2"))
	mustSync(t, b)
	b.SetService(svc)
	mustSync(t, b)
	checkTable(t, b)
	if n := b.have.rows["service-endpoints"]; n != 1 {
		t.Errorf("%d endpoints, want 1", n)
	}
	if len(recorded) != 1 || !strings.Contains(recorded[0].Note, "ns/svc") || !strings.Contains(recorded[0].Note, "10.96.0.2") {
		t.Errorf("events %+v, want one", recorded)
	}
	node := sampleNode()
	node.ServiceCIDRs = nil // no CIDR is known: nothing is invalid
	b.SetNode(node)
	mustSync(t, b)
	if n := b.have.rows["service-endpoints"]; n != 2 {
		t.Errorf("%d endpoints without service CIDRs, want 2", n)
	}
}

// A rewrite replaces sets with intervals: flushing one takes time that grows with
// the square of its rows.
func TestRewriteReplacesIntervalSets(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	tellSample(b)
	mustSync(t, b)
	handles := func() map[string]uint64 {
		found, err := b.kernel.Sets(b.have.table)
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
	mustSync(t, b)
	checkTable(t, b)
	after := handles()
	for _, s := range b.have.table.Sets {
		if replaced := before[s.Name] != after[s.Name]; replaced != s.Interval {
			t.Errorf("set %s was replaced: %v, want %v", s.Name, replaced, s.Interval)
		}
	}
	check(t, b)
	if b.Stats().Repairs != 0 {
		t.Error("our own rewrite was repaired")
	}
}

// What is told one after the other is one change: there is no conflict between what was and what will be. A conflict of both families is
// told once.
func TestConflictsOfOneChange(t *testing.T) {
	newNamespace(t)
	var recorded events
	config := sampleConfig()
	config.Events = &recorded
	p, err := newProxier(*config, nft.IPv4, nft.IPv6)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	service := func(name string, ports ...ServicePort) *Service {
		return simpleService(name, "10.96.0.1", func(s *Service) {
			s.Families, s.Ports = []nft.Family{nft.IPv4, nft.IPv6}, ports
		})
	}
	a, b := ServicePort{"a", TCP, 80, 30001}, ServicePort{"b", TCP, 81, 30002}
	step := func(what string, events int) {
		t.Helper()
		mustSync(t, p.sink)
		if len(recorded) != events {
			t.Errorf("%s: %d events, want %d: %v", what, len(recorded), events, recorded)
		}
	}
	p.sink.SetService(service("before", a, b))
	step("one service", 0)
	p.sink.SetService(service("after", a, b))
	p.sink.DeleteService(ServiceName{"ns", "before"})
	step("renamed", 0)
	a.NodePort, b.NodePort = b.NodePort, a.NodePort
	p.sink.SetService(service("after", a, b))
	step("NodePorts swapped", 0)
	other := service("other", ServicePort{"c", TCP, 90, 30001})
	other.ClusterIPs = nil
	p.sink.SetService(other)
	step("NodePort of another", 1)
	p.sink.SetService(other)
	step("again", 1)
}

// Whatever a Service becomes, it leaves nothing behind of what it was.
func TestTypeChanges(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	name := ServiceName{"ns", "svc"}
	b.SetEndpoint(name, simpleEndpoint("10.244.0.1"))
	b.SetEndpoint(name, simpleEndpoint("10.244.0.2"))
	mustSync(t, b)
	empty := list(t, nft.IPv4)
	for i, change := range []func(*Service){
		nil,
		func(s *Service) { s.Ports[0].NodePort = 30080 },
		func(s *Service) {
			s.Ports[0].NodePort = 30080
			s.LoadBalancerIPs, s.SourceRanges = []netip.Addr{addr("192.0.2.1")}, []netip.Prefix{prefix("10.0.0.0/8")}
			s.ExternalPolicy = PolicyLocal
		},
		func(s *Service) { s.AffinityTimeout, s.Ports[0].NodePort = time.Hour, 30080 },
		func(s *Service) { s.AffinityTimeout, s.InternalPolicy = time.Hour, PolicyLocal },
		func(s *Service) { s.Ports[0].Protocol = UDP },
	} {
		b.SetService(simpleService("svc", "10.96.0.1", change))
		mustSync(t, b)
		checkTable(t, b)
		b.DeleteService(name)
		mustSync(t, b)
		got, want := ruleless(withoutIdle(list(t, nft.IPv4))), ruleless(empty)
		if !slices.Equal(got, want) {
			t.Errorf("step %d left something behind:\n%s", i, difference(want, got))
		}
	}
	if len(b.ports) != 0 || len(b.claims.owners) != 0 || len(b.have.shared) != 0 || len(b.garbage) != 0 {
		t.Errorf("still known: %d ports, %d frontends, %d shared rows, %d chains", len(b.ports), len(b.claims.owners), len(b.have.shared), len(b.garbage))
	}
}

// Reset forgets everything; what is told anew replaces what is in the kernel.
func TestReset(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	tellSample(b)
	mustSync(t, b)
	b.Reset()
	svc := simpleService("only", "10.96.0.1", nil)
	b.SetService(svc)
	b.SetEndpoint(svc.Name, simpleEndpoint("10.244.0.1"))
	mustSync(t, b)
	checkTable(t, b)
}

// A table that other programs leave alone is not written again when they change theirs.
func TestOthersTables(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	tellSample(b)
	mustSync(t, b)
	rewrites := b.stats.Rewrites
	for range 3 {
		runNFT(t, "add table ip other", "-f", "-")
		svc := simpleService("svc", "10.96.0.99", nil)
		b.SetService(svc)
		mustSync(t, b)
		runNFT(t, "delete table ip other", "-f", "-")
		b.DeleteService(svc.Name)
		if err := b.Check(); err != nil {
			t.Fatal(err)
		}
		mustSync(t, b)
	}
	checkTable(t, b)
	if b.stats.Rewrites != rewrites {
		t.Errorf("%d rewrites", b.stats.Rewrites-rewrites)
	}
}

// failing refuses every commit.
type failing struct{ kernel }

var errFailing = errors.New("out of order")

func (failing) Commit(*nft.Batch) error { return errFailing }

// What could not be committed is not taken for done.
func TestCommitBeforeRemembering(t *testing.T) {
	newNamespace(t)
	b := newBackend(t, sampleConfig(), nft.IPv4)
	tellSample(b)
	mustSync(t, b)
	sound := b.kernel
	b.kernel = failing{sound}
	b.SetService(simpleService("svc", "10.96.0.99", nil))
	b.DeleteService(ServiceName{"default", "web"})
	if err := b.Sync(); !errors.Is(err, errFailing) {
		t.Fatalf("got %v, want %v", err, errFailing)
	}
	b.kernel = sound
	mustSync(t, b)
	checkTable(t, b)
}
