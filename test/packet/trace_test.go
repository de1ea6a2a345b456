package packet

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// TestTraceRepeated shows what `nftproxy trace` reports about a repeated packet
// of a connection that nothing answers.
func TestTraceRepeated(t *testing.T) {
	t.Parallel()
	needOwnedTables(t)
	c := newCluster(t)
	to := c.destination(c.serve("{name: silent, endpoints: b1}"), "clusterIP", ipv4)
	labtest.Run(t, c.pods["b1"].Namespace, "nft", "add table ip silence; add chain ip silence input "+
		"{ type filter hook input priority 0; policy drop; }")
	run := startTrace(t, c.Node1.Namespace, to.String(), "--count", "2")
	lab.Probe(t.Context(), c.pods["pod1"].Namespace, "tcp", to, lab.ProbeOptions{Timeout: 1500 * time.Millisecond})
	first, second := run.next(t), run.next(t)
	want := netip.AddrPortFrom(c.pods["b1"].IPv4, firstTarget)
	if first.Action != explain.ToEndpoint || first.Repeated || first.Endpoint != want {
		t.Errorf("first packet: got %+v", first)
	}
	if !second.Repeated || second.Endpoint != first.Endpoint ||
		!strings.Contains(second.Answer, "has not answered yet") {
		t.Errorf("second packet: got %+v", second)
	}
}

// TestTraceKnownFlow shows that packets of a known UDP flow are not traced, and
// that the packets of a new one are.
func TestTraceKnownFlow(t *testing.T) {
	t.Parallel()
	needOwnedTables(t)
	c := newCluster(t)
	pod1, to := c.origin("pod1"), c.destination(c.serve("{name: web, endpoints: a1}"), "clusterIP", ipv4)
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
	node, to := c.Node1.Namespace, c.destination(c.serve("{name: web, endpoints: a1}"), "clusterIP", ipv4)
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
	// nft can load what it lists. The client has no tables.
	load := c.Client.Command(t.Context(), "nft", "-c", "-f", "-")
	load.Stdin = strings.NewReader(labtest.Run(t, node, "nft", "list", "ruleset"))
	if out, err := load.CombinedOutput(); err != nil {
		t.Errorf("nft cannot load its listing: %v\n%s", err, out)
	}
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

// TestTraceAll shows that `nftproxy trace` without a destination traces packets
// to all Services, without a running proxy those to ClusterIPs, at a limited
// rate.
func TestTraceAll(t *testing.T) {
	t.Parallel()
	needOwnedTables(t)
	c := newCluster(t)
	c.apply(`{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: kubernetes},
		spec: {cidrs: [10.96.0.0/16, "fd00:96::/112"]}}`)
	web := c.serve("{name: web, spec: {type: NodePort}, endpoints: a1}")
	for f := range bothFamilies() {
		vip, nodePort := c.destination(web, "clusterIP", family(f)), c.destination(web, "nodePort@node1", family(f))
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
	if err := c.traceBurst(t, web); err != nil {
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
