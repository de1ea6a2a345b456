package packet

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
)

// udpFlows are UDP clients with fixed source ports: connection tracking
// considers all packets of a client one flow.
type udpFlows struct {
	checks checks
	ports  []uint16
}

// newFlows returns flows for paths, lines "FROM... -> TO...".
func (c *cluster) newFlows(s *service, path string, firstPort uint16) *udpFlows {
	f := &udpFlows{checks: c.checks(s, path+" => refused")}
	for i := range f.checks {
		f.ports = append(f.ports, firstPort+uint16(i))
	}
	return f
}

// ask sends another datagram of flow i.
func (f *udpFlows) ask(t *testing.T, i int, timeout time.Duration) lab.Result {
	local := netip.AddrPortFrom(netip.Addr{}, f.ports[i])
	return f.checks[i].probe(t.Context(), lab.ProbeOptions{Local: local, Timeout: timeout})
}

// mustStay sends datagrams of all flows. The server must answer all of them.
func (f *udpFlows) mustStay(t *testing.T, when, server string) {
	t.Helper()
	for i, k := range f.checks {
		for range 2 {
			if result := f.ask(t, i, answerTimeout); result.Answer.Server != server {
				t.Errorf("%s: flow %s -> %v: got %v, want %s", when, k.origin.Name, k.to, result, server)
			}
		}
	}
}

// mustGet sends datagrams of all flows until each has the outcome, from the
// server.
func (f *udpFlows) mustGet(t *testing.T, when string, outcome lab.Outcome, server string) {
	t.Helper()
	for i, k := range f.checks {
		eventually(t, fmt.Sprintf("%s: flow %s -> %v", when, k.origin.Name, k.to), func() error {
			result := f.ask(t, i, silence)
			if result.Outcome != outcome || result.Answer.Server != server {
				return fmt.Errorf("got %v, want %v %s", result, outcome, server)
			}
			return nil
		})
	}
}

// TestUDPFlows shows flows of clients that keep sending, when endpoints
// change.
func TestUDPFlows(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	// On a slow machine, more than the default of 30 s passes between two
	// datagrams.
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
	all := []*udpFlows{
		c.newFlows(&s, "client pod1 node1 -> clusterIP externalIP nodePort@node1", 31000),
		c.newFlows(&local, "client pod1 node1 -> nodePort@node1", 31100),
		c.newFlows(&sticky, "client pod1 -> clusterIP nodePort@node1", 31200),
	}
	stay := func(when, server string) {
		t.Run(when, func(t *testing.T) {
			for _, f := range all {
				f.mustStay(t, when, server)
			}
		})
	}
	get := func(when string, outcome lab.Outcome, server string) {
		t.Run(when, func(t *testing.T) {
			for _, f := range all {
				f.mustGet(t, when, outcome, server)
			}
		})
	}
	stay("first endpoint", "a1")
	serve("a1 b1")
	stay("another one added", "a1")
	serve("a1 a2")
	stay("another one replaced", "a1")
	serve("a1")
	stay("another one removed", "a1")
	serve("a1:terminating a2")
	stay("terminating and serving", "a1")
	serve("a1:stopped a2")
	get("terminating and not serving", lab.Answered, "a2")
	serve("a1")
	get("replaced", lab.Answered, "a1")
	serve("")
	get("none left", lab.Refused, "")
	serve("a2")
	get("first one added", lab.Answered, "a2")
	stay("no change", "a2")
	serve("a1:unready a2:stopped")
	get("none usable", lab.Refused, "")
	serve("a1")
	get("one became ready", lab.Answered, "a1")
	c.remove("dns")
	c.settle()
	t.Run("service deleted", func(t *testing.T) {
		all[1].mustGet(t, "service deleted", lab.Refused, "") // by the node
		for i := range all[0].checks {
			if result := all[0].ask(t, i, silence); result.Outcome == lab.Answered {
				t.Errorf("got %v, want no answer", result)
			}
		}
	})
}

// TestUDPFlowBeforeTheService shows that a flow that begins before the
// service exists gets an answer after the service is added.
func TestUDPFlowBeforeTheService(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := service{
		name: "late", spec: "type: NodePort\nexternalIPs: {{.ExternalIPs}}", protocols: "UDP",
		endpoints: "a1",
	}
	s.setDefaults(c)
	all := c.newFlows(&s, "client pod1 node1 -> clusterIP externalIP nodePort@node1", 31000)
	for range 2 {
		for i := range all.checks {
			if result := all.ask(t, i, 50*time.Millisecond); result.Outcome == lab.Answered {
				t.Fatalf("before the service is added: got %v, want no answer", result)
			}
		}
	}
	c.serve("late", &s)
	all.mustGet(t, "service added", lab.Answered, "a1")
}
