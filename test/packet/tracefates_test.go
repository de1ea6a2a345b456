package packet

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/trace"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// otherTables drop packets that pass the proxy's rules, before and after the
// translation of the destination.
const otherTables = `
table inet firewall {
	chain accepting {
		type filter hook forward priority 0; policy accept;
		ip saddr 172.30.0.0/24 reject
		tcp dport 8080 jump ports
	}
	chain ports {
		ip saddr 10.244.0.0/16 accept
	}
	chain forward {
		type filter hook forward priority 10; policy drop;
		meta l4proto != { tcp, udp } accept
		udp dport 8080 accept
		ip6 saddr fd00:244::/32 ip6 daddr fd00:244:1::/64 accept
	}
}
table ip untrusted {
	chain prerouting {
		type filter hook prerouting priority raw;
		ip saddr 172.30.0.100 meta l4proto udp drop
	}
}
`

// TestTraceOtherTables shows that `nftproxy trace` names the rule or policy of
// another table that drops a packet.
func TestTraceOtherTables(t *testing.T) {
	t.Parallel()
	needOwnedTables(t)
	c := newCluster(t)
	web := service{name: "web", endpoints: "a1"}
	c.serve("web", &web)
	load := c.Node1.Command(t.Context(), "nft", "-f", "-")
	load.Stdin = strings.NewReader(otherTables)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
	for _, test := range c.otherTableTests() {
		from, to := c.origin(test.from), c.destination(&web, "clusterIP", test.family)
		run := startTrace(t, c.Node1.Namespace, to.String(), "--count", "1", "--from",
			from.source(test.family).String())
		lab.Probe(t.Context(), from.Namespace, test.network, to, lab.ProbeOptions{Timeout: silence})
		packet := run.next(t)
		if packet.Answer != test.answer || packet.Explain != "" {
			t.Errorf("%+v: got answer\n%s", test, packet.Answer)
		}
		if got := strings.Join(foreignSteps(packet), "; "); got != test.steps {
			t.Errorf("%+v: got steps %s", test, got)
		}
		run.wait(t)
	}
}

// otherTableTest is a packet to a Service with the endpoint a1.
type otherTableTest struct {
	from, network string
	family        family
	answer        string
	steps         string // of other tables
}

func (c *cluster) otherTableTests() []otherTableTest {
	const kept = ", source address kept"
	a1 := [2]string{"endpoint " + c.endpoint("a1", ipv4), "endpoint " + c.endpoint("a1", ipv6)}
	return []otherTableTest{
		{
			"pod1", "tcp", ipv4, "dropped on the way to " + a1[ipv4] +
				" by table inet firewall, chain forward: policy drop",
			"prerouting policy accept; accepting jump ports; ports accept; forward policy drop",
		},
		{
			"pod1", "udp", ipv4, a1[ipv4] + kept,
			"prerouting policy accept; accepting policy accept; forward accept",
		},
		{
			"client", "udp", ipv4,
			"dropped by table ip untrusted, chain prerouting: ip saddr 172.30.0.100 meta l4proto udp drop (handle 2)",
			"prerouting drop",
		},
		{
			"client", "tcp", ipv4,
			"rejected (ICMP port unreachable) on the way to " + a1[ipv4] + " by table inet firewall, chain " +
				"accepting: ip saddr 172.30.0.0/24 reject with icmp port-unreachable (handle 4)",
			"prerouting policy accept; accepting drop",
		},
		{
			"pod1", "tcp", ipv6, a1[ipv6] + kept,
			"accepting jump ports; accepting policy accept; forward accept",
		},
	}
}

// foreignSteps returns the chains and verdicts of steps in other tables.
func foreignSteps(p trace.Packet) (steps []string) {
	for _, s := range p.Steps {
		if !strings.HasSuffix(s.Table, " kube-proxy") {
			policy := ""
			if s.Handle == 0 {
				policy = "policy "
			}
			steps = append(steps, s.Chain+" "+policy+s.Verdict)
		}
	}
	return steps
}

// endpoint returns the address and port of a pod's server.
func (c *cluster) endpoint(pod string, f family) string {
	return netip.AddrPortFrom(c.origin(pod).source(f), firstTarget).String()
}

// TestTraceFates shows what `nftproxy trace` reports about packets that no
// rule refuses: a repeated packet of a known connection, and one that is lost
// after its translation.
func TestTraceFates(t *testing.T) {
	t.Parallel()
	needOwnedTables(t)
	c := newCluster(t)
	silent, gone := service{name: "silent", endpoints: "b1"}, service{name: "gone", endpoints: "a1"}
	c.serve("services", &silent, &gone)
	toSilent, toGone := c.destination(&silent, "clusterIP", ipv4), c.destination(&gone, "clusterIP", ipv4)
	pod := c.pods["pod1"].Namespace

	labtest.Run(t, c.pods["b1"].Namespace, "nft", "add table ip silence; add chain ip silence input "+
		"{ type filter hook input priority 0; policy drop; }")
	run := startTrace(t, c.Node1.Namespace, toSilent.String(), "--count", "2")
	lab.Probe(t.Context(), pod, "tcp", toSilent, lab.ProbeOptions{Timeout: 1500 * time.Millisecond})
	first, second := run.next(t), run.next(t)
	if first.Action != explain.ToEndpoint || first.Repeated || first.Endpoint.String() != c.endpoint("b1", ipv4) {
		t.Errorf("first packet: got %+v", first)
	}
	if !second.Repeated || second.Endpoint != first.Endpoint ||
		!strings.Contains(second.Answer, "has not answered yet") {
		t.Errorf("second packet: got %+v", second)
	}

	if err := c.Node1.SetSysctl("net.ipv4.conf.all.rp_filter", "1"); err != nil {
		t.Fatal(err)
	}
	labtest.Run(t, c.Node1.Namespace, "ip", "route", "replace", "blackhole", c.pods["a1"].IPv4.String()+"/32")
	run = startTrace(t, c.Node1.Namespace, toGone.String(), "--count", "1")
	lab.Probe(t.Context(), pod, "tcp", toGone, lab.ProbeOptions{Timeout: silence})
	if p := run.next(t); p.Action != trace.Lost || !strings.Contains(p.Answer, "lost after the proxy's rules: ") {
		t.Errorf("got %+v, want a lost packet", p)
	}
}

// TestTraceKnownFlow shows that packets of a known UDP flow are not traced, and
// that the packets of a new one are.
func TestTraceKnownFlow(t *testing.T) {
	t.Parallel()
	needOwnedTables(t)
	c := newCluster(t)
	web := service{name: "web", endpoints: "a1"}
	c.serve("web", &web)
	pod1, to := c.origin("pod1"), c.destination(&web, "clusterIP", ipv4)
	known, result := lab.Open(t.Context(), pod1.Namespace, "udp", to, lab.ProbeOptions{})
	if result.Outcome != lab.Answered {
		t.Fatalf("got %v", result)
	}
	defer known.Close()
	run := startTrace(t, c.Node1.Namespace, to.String(), "--timeout", "2s")
	for range 3 {
		if result := known.Ask(t.Context()); result.Outcome != lab.Answered {
			t.Errorf("got %v", result)
		}
	}
	fresh := lab.ProbeOptions{Local: netip.AddrPortFrom(netip.Addr{}, 9999)}
	lab.Probe(t.Context(), pod1.Namespace, "udp", to, fresh)
	if p := run.next(t); p.Source.Port() != fresh.Local.Port() {
		t.Errorf("got %+v, want a packet from port %d", p, fresh.Local.Port())
	}
	if run.packets.More() {
		t.Errorf("got %+v, want no other packet", run.next(t))
	}
}

// TestTraceEnds shows that the table of `nftproxy trace` disappears with the
// command, however it ends, and that several commands do not disturb each
// other.
func TestTraceEnds(t *testing.T) {
	t.Parallel()
	needOwnedTables(t)
	c := newCluster(t)
	web := service{name: "web", endpoints: "a1"}
	c.serve("web", &web)
	node, to := c.Node1.Namespace, c.destination(&web, "clusterIP", ipv4)
	probe := func() {
		t.Helper()
		if r := lab.Probe(t.Context(), c.pods["pod1"].Namespace, "tcp", to,
			lab.ProbeOptions{}); r.Outcome != lab.Answered {
			t.Errorf("got %v", r)
		}
	}
	first, second := startTrace(t, node, to.String()), startTrace(t, node, to.String(), "--from", "pod")
	other := startTrace(t, node, to.String(), "--from", "node", "--timeout", "2s")
	if tables := traceTables(t, node); len(tables) != 3 {
		t.Errorf("got tables %q, want 3", tables)
	}
	checkListing(t, c, node)
	probe()
	a, b := first.next(t), second.next(t)
	if a.Source != b.Source || a.Answer != b.Answer || len(a.Steps) != len(b.Steps) {
		t.Errorf("got packets\n%+v\n%+v, want the same one", a, b)
	}
	if code := other.wait(t); code != 1 || !strings.Contains(other.logged(t), "no new connection to "+to.String()) {
		t.Errorf("without a packet: got exit code %d, %s", code, other.logged(t))
	}
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first.wait(t)
	if tables := traceTables(t, node); len(tables) != 1 {
		t.Errorf("after SIGKILL: got tables %q, want 1", tables)
	}
	probe()
	second.next(t)
	if err := second.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := second.wait(t); code != 0 {
		t.Errorf("after an interrupt: got exit code %d, want 0: %s", code, second.logged(t))
	}
	if tables := traceTables(t, node); len(tables) != 0 {
		t.Errorf("after an interrupt: got tables %q", tables)
	}
}

// checkListing checks that nft can load what it lists at a node.
func checkListing(t *testing.T, c *cluster, node *lab.Namespace) {
	t.Helper()
	listing := labtest.Run(t, node, "nft", "list", "ruleset")
	load := c.Client.Command(t.Context(), "nft", "-c", "-f", "-") // the client has no tables
	load.Stdin = strings.NewReader(listing)
	if out, err := load.CombinedOutput(); err != nil {
		t.Errorf("nft cannot load its listing: %v\n%s\n%s", err, out, listing)
	}
}

// TestTraceBridge shows that packets are followed through a bridge with
// br_netfilter, which changes their identity.
func TestTraceBridge(t *testing.T) {
	t.Parallel()
	needOwnedTables(t)
	c := newIdleCluster(t, defaultFlags()...)
	c.addBridgedPods("near1", "near2", "near3")
	c.filterBridgedFrames()
	c.write("cidr", serviceCIDR("kubernetes", "10.96.0.0/16", "fd00:96::/112"))
	c.start()
	near, far := service{name: "near", endpoints: "near2"}, service{name: "far", endpoints: "b1"}
	c.serve("services", &near, &far)
	for _, k := range slices.Concat(
		c.checks(&near, "near1 near3 -> clusterIP => near2 as itself"),
		c.checks(&far, "near1 -> clusterIP => b1 as itself"),
		c.checks(&far, "near1 -> clusterIP:9 => refused"),
	) {
		k.traced(t, false)
	}
}

// TestTraceAll shows that `nftproxy trace` without a destination traces packets
// to all Services, without a running proxy those to ClusterIPs, at a limited
// rate.
func TestTraceAll(t *testing.T) {
	t.Parallel()
	needOwnedTables(t)
	c := newIdleCluster(t, defaultFlags()...)
	c.write("cidr", serviceCIDR("kubernetes", "10.96.0.0/16", "fd00:96::/112"))
	c.start()
	web := service{name: "web", spec: "type: NodePort", endpoints: "a1"}
	c.serve("web", &web)
	for f := range bothFamilies() {
		vip, nodePort := c.destination(&web, "clusterIP", family(f)), c.destination(&web, "nodePort@node1", family(f))
		run := startTrace(t, c.Node1.Namespace, "--count", "2", "--from", c.Client.Addrs()[f].String())
		for _, to := range []netip.AddrPort{vip, nodePort} {
			lab.Probe(t.Context(), c.Client, "tcp", to, lab.ProbeOptions{})
			if p := run.next(t); p.Destination != to || p.ServicePort != "default/web:http-tcp" {
				t.Errorf("got %+v, want a packet to %v", p, to)
			}
		}
	}
	byName := startTrace(t, c.Node1.Namespace, "svc/default/web:80", "--protocol", "tcp", "--count", "1")
	c.terminate()
	if err := c.traceBurst(t, &web); err != nil {
		t.Error(err)
	}
	if p := byName.next(t); p.ServicePort != "default/web:http-tcp" {
		t.Errorf("got %+v, want a packet to the Service", p)
	}
}

// traceBurst traces packets to all ClusterIPs from outside while clients
// connect to a Service. It returns an error if other packets are traced, or
// too many.
func (c *cluster) traceBurst(t *testing.T, web *service) error {
	t.Helper()
	run := startTrace(t, c.Node1.Namespace, "--count", "1000", "--timeout", "5s", "--from", "outside")
	const attempts = 60
	began := time.Now()
	var wait sync.WaitGroup
	for _, f := range bothFamilies() {
		for _, to := range []netip.AddrPort{c.destination(web, "clusterIP", f),
			c.destination(web, "nodePort@node1", f)} {
			for _, from := range []*lab.Namespace{c.Client, c.pods["pod1"].Namespace} {
				wait.Go(func() {
					for range attempts {
						lab.Probe(t.Context(), from, "tcp", to, lab.ProbeOptions{})
					}
				})
			}
		}
	}
	wait.Wait()
	most := 10 + 10*int(1+time.Since(began).Seconds())
	seen := make(map[string]int)
	for run.packets.More() {
		p := run.next(t)
		seen[fmt.Sprintf("%v from %v", p.Destination, p.Source.Addr())]++
	}
	if code := run.wait(t); code != 0 || len(seen) != 2 {
		return fmt.Errorf("got exit code %d and packets %v, want packets to both ClusterIPs", code, seen)
	}
	for f, addr := range c.Client.Addrs() {
		packets := fmt.Sprintf("%v from %v", c.destination(web, "clusterIP", family(f)), addr)
		if n := seen[packets]; n < 1 || n > most {
			return fmt.Errorf("got %d packets to %s, want 1 to %d of %d", n, packets, most, attempts)
		}
	}
	return nil
}
