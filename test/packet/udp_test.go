package packet

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
)

// flows are UDP clients that keep their source ports. For connection tracking, all that one sends belongs together.
type flows struct {
	checks checks
	ports  []uint16
}

// newFlows returns flows along paths, lines as expectations have them without outcome.
func (c *cluster) newFlows(s *service, path string, firstPort uint16) *flows {
	f := &flows{checks: c.checks(s, path+" => refused")}
	for i := range f.checks {
		f.ports = append(f.ports, firstPort+uint16(i))
	}
	return f
}

// ask sends one more datagram of flow i.
func (f *flows) ask(t *testing.T, i int, timeout time.Duration) lab.Result {
	return f.checks[i].probe(t.Context(), lab.ProbeOptions{Local: netip.AddrPortFrom(netip.Addr{}, f.ports[i]), Timeout: timeout})
}

// mustStay sends datagrams of all flows, which one server must answer.
func (f *flows) mustStay(t *testing.T, when, server string) {
	t.Helper()
	for i, k := range f.checks {
		for range 2 {
			if result := f.ask(t, i, answerTimeout); result.Answer.Server != server {
				t.Errorf("%s: flow %s -> %v: %v, want it to stay with %s", when, k.origin.Name, k.to, result, server)
			}
		}
	}
}

// mustGet keeps sending datagrams of all flows until each comes to the outcome, or to the server.
func (f *flows) mustGet(t *testing.T, when string, outcome lab.Outcome, server string) {
	t.Helper()
	for i, k := range f.checks {
		eventually(t, fmt.Sprintf("%s: flow %s -> %v", when, k.origin.Name, k.to), func() error {
			result := f.ask(t, i, silence)
			if result.Outcome != outcome || result.Answer.Server != server {
				return fmt.Errorf("%v, want %v %s", result, outcome, server)
			}
			return nil
		})
	}
}

// TestUDPFlows shows what becomes of flows whose clients keep on sending, when endpoints come and go.
func TestUDPFlows(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	// The default is 30 s. A slow machine takes longer between two datagrams.
	for _, node := range c.Nodes() {
		if err := node.SetSysctl("net.netfilter.nf_conntrack_udp_timeout", "600"); err != nil {
			t.Fatal(err)
		}
	}
	s := service{name: "dns", spec: "type: NodePort\nexternalIPs: {{.ExternalIPs}}", protocols: "UDP"}
	local := service{name: "local", spec: "type: NodePort\nexternalTrafficPolicy: Local", protocols: "UDP"}
	sticky := service{name: "sticky", spec: "type: NodePort\nsessionAffinity: ClientIP", protocols: "UDP"}
	serve := func(endpoints string) {
		t.Helper()
		for _, s := range []*service{&s, &local, &sticky} {
			s.slices = []slice{{endpoints: endpoints}}
		}
		c.serve("dns", &s, &local, &sticky)
	}
	serve("a1")
	all := []*flows{
		c.newFlows(&s, "client pod1 node1 -> clusterIP externalIP nodePort@node1", 31000),
		c.newFlows(&local, "client pod1 node1 -> nodePort@node1", 31100),
		c.newFlows(&sticky, "client pod1 -> clusterIP nodePort@node1", 31200),
	}
	stay := func(when, server string) {
		t.Helper()
		for _, f := range all {
			f.mustStay(t, when, server)
		}
	}
	get := func(when string, outcome lab.Outcome, server string) {
		t.Helper()
		for _, f := range all {
			f.mustGet(t, when, outcome, server)
		}
	}
	stay("first endpoint", "a1")
	serve("a1 b1")
	stay("another one came", "a1")
	serve("a1 a2")
	stay("another one was replaced", "a1")
	serve("a1")
	stay("another one went", "a1")
	serve("a1:terminating a2")
	stay("terminating, and still serving", "a1")
	serve("a1:stopped a2")
	get("not serving any more", lab.Answered, "a2")
	serve("a1")
	get("replaced", lab.Answered, "a1")
	serve("")
	get("none left", lab.Refused, "")
	serve("a2")
	get("first one came", lab.Answered, "a2")
	stay("nothing happened", "a2")
	serve("a1:unready a2:stopped")
	get("none usable", lab.Refused, "")
	serve("a1")
	get("one became ready", lab.Answered, "a1")
	c.remove("dns")
	c.settle()
	all[1].mustGet(t, "service deleted", lab.Refused, "") // by the node, where nothing listens
	for i := range all[0].checks {
		if result := all[0].ask(t, i, silence); result.Outcome == lab.Answered {
			t.Errorf("service deleted: %v", result)
		}
	}
}

// TestUDPFlowBeforeTheService shows that a client that has been sending to an address in vain gets an answer once a service
// has it.
func TestUDPFlowBeforeTheService(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := service{
		name: "late", spec: "type: NodePort\nexternalIPs: {{.ExternalIPs}}", protocols: "UDP",
		slices: []slice{{endpoints: "a1"}},
	}
	s.allot(c)
	all := c.newFlows(&s, "client pod1 node1 -> clusterIP externalIP nodePort@node1", 31000)
	for range 2 {
		for i := range all.checks {
			if result := all.ask(t, i, 50*time.Millisecond); result.Outcome == lab.Answered {
				t.Fatalf("answered before there is a service: %v", result)
			}
		}
	}
	c.serve("late", &s)
	all.mustGet(t, "service came", lab.Answered, "a1")
}
