package conntrack

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDelete(t *testing.T) {
	ns := newNamespace(t)
	flows := filterFlows()
	ns.injector(t).add(t, flows...)
	c := ns.open(t)
	for i, flow := range flows {
		var found Flow
		for f, err := range c.Flows(Filter{}) {
			if err != nil {
				t.Fatal(err)
			}
			if id := f.ID; sameFlows([]Flow{withID(f, 0)}, []Flow{flow}) {
				found = withID(f, id)
			}
		}
		if n, err := c.Delete(found); n != 1 || err != nil {
			t.Fatalf("delete %v: %d, %v", flow, n, err)
		}
		if got := list(t, c); !sameFlows(got, flows[i+1:]) {
			t.Fatalf("after %v was deleted: %v\nwant %v", flow, got, flows[i+1:])
		}
		if n, err := c.Delete(found); n != 0 || err != nil {
			t.Fatalf("delete %v again: %d, %v", flow, n, err)
		}
	}
}

func withID(f Flow, id uint32) Flow {
	f.ID = id
	return f
}

// A flow with the same tuples in another zone is another flow.
func TestDeleteKeepsToItsZone(t *testing.T) {
	ns := newNamespace(t)
	flow := newFlow(udp, "10.0.0.1:4000", "10.96.0.10:53", "10.244.0.5:53")
	flows := []Flow{flow, flow.inZone(7, ZoneBoth), flow.inZone(8, ZoneBoth)}
	ns.injector(t).add(t, flows...)
	c := ns.open(t)
	for f, err := range c.Flows(Filter{InZone: true, Zone: 7}) {
		if err != nil {
			t.Fatal(err)
		}
		if n, err := c.Delete(f); n != 1 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	if got, want := list(t, c), []Flow{flows[0], flows[2]}; !sameFlows(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// Between the dump and the deletion, the client sent again and was translated
// to another endpoint.
func TestDeleteLeavesTheFlowThatReplacedIt(t *testing.T) {
	for name, flows := range map[string][2]Flow{
		"IPv4": {
			newFlow(udp, "10.0.0.1:4000", "10.96.0.10:53", "10.244.0.5:53"),
			newFlow(udp, "10.0.0.1:4000", "10.96.0.10:53", "10.244.0.6:53"),
		},
		"IPv6": {
			newFlow(udp, "[fd00::1]:4000", "[fd96::10]:53", "[fd24::5]:53"),
			newFlow(udp, "[fd00::1]:4000", "[fd96::10]:53", "[fd24::6]:53"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace(t)
			in, c := ns.injector(t), ns.open(t)
			sameIDs := 0
			for range 20 {
				in.add(t, flows[0])
				old := find(t, c, flows[0].Original.Src)
				if n, err := c.Delete(old); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				in.add(t, flows[1])
				replacement := find(t, c, flows[0].Original.Src)
				if replacement.ID == old.ID {
					sameIDs++
				}
				if n, err := c.Delete(old); n != 0 || err != nil {
					t.Fatalf("the old flow was deleted again: %d, %v", n, err)
				}
				if n, err := c.Delete(find(t, c, flows[0].Original.Src)); n != 1 || err != nil {
					t.Fatal(n, err)
				}
			}
			t.Logf("the id of the old flow came again %d times of 20", sameIDs)
		})
	}
}

// A flow with the same tuples but another ID is another flow.
func TestDeleteByID(t *testing.T) {
	ns := newNamespace(t)
	flow := newFlow(udp, "10.0.0.1:4000", "10.96.0.10:53", "10.244.0.5:53")
	ns.injector(t).add(t, flow)
	c := ns.open(t)
	f := find(t, c, flow.Original.Src)
	f.ID++
	if n, err := c.Delete(f); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if len(list(t, c)) != 1 {
		t.Error("the flow was deleted under another id")
	}
}

// Deletions need several system calls, and some of the flows no longer exist.
func TestDeleteMany(t *testing.T) {
	ns := newNamespace(t)
	flows := manyFlows(3*deleteBatch + 5)
	ns.injector(t).add(t, flows...)
	c := ns.open(t)
	var all []Flow
	for flow, err := range c.Flows(Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, flow)
	}
	if n, err := c.Delete(all[:deleteBatch+3]...); n != deleteBatch+3 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := c.Delete(all...); n != len(all)-deleteBatch-3 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := c.Delete(all...); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := c.Delete(); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if left := list(t, c); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// manyFlows returns flows of different clients to one VIP and endpoint.
func manyFlows(n int) []Flow {
	flows := make([]Flow, n)
	for i := range flows {
		flow := newFlow(udp, "10.0.0.0:0", "10.96.0.10:53", "10.244.0.5:53")
		client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)}), 4000)
		flow.Original.Src, flow.Reply.Dst = client, client
		flows[i] = flow
	}
	return flows
}

func TestDeleteWithoutPorts(t *testing.T) {
	ns := newNamespace(t)
	flow := newFlow(udp, "10.0.0.1:4000", "10.96.0.10:53", "10.244.0.5:53")
	ns.injector(t).add(t, flow)
	c := ns.open(t)
	icmp := flow
	icmp.Protocol = unix.IPPROTO_ICMP
	if n, err := c.Delete(find(t, c, flow.Original.Src), icmp); n != 0 || !errors.Is(err, ErrNoPorts) {
		t.Errorf("%d, %v", n, err)
	}
	if len(list(t, c)) != 1 {
		t.Error("something was deleted")
	}
}

// A loop that is left early does not affect the next one.
func TestFlowsLeftEarly(t *testing.T) {
	ns := newNamespace(t)
	flows := manyFlows(2000) // several parts
	ns.injector(t).add(t, flows...)
	c := ns.open(t)
	for range 3 {
		for _, err := range c.Flows(Filter{}) {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	if got := list(t, c); !sameFlows(got, flows) {
		t.Errorf("%d flows, want %d", len(got), len(flows))
	}
}

// Deletions during a dump do not hide other flows.
func TestDeleteWithinFlows(t *testing.T) {
	ns := newNamespace(t)
	flows := manyFlows(2000)
	ns.injector(t).add(t, flows...)
	c := ns.open(t)
	deleted := 0
	for flow, err := range c.Flows(Filter{Family: IPv4, Protocol: udp}) {
		if err != nil {
			t.Fatal(err)
		}
		n, err := c.Delete(flow)
		if err != nil {
			t.Fatal(err)
		}
		deleted += n
	}
	if left := list(t, c); deleted != len(flows) || len(left) != 0 {
		t.Errorf("%d deleted, %d left of %d", deleted, len(left), len(flows))
	}
}

func TestOpenInNamespace(t *testing.T) {
	a, b := newNamespace(t), newNamespace(t)
	a.injector(t).add(t, manyFlows(1)...)
	if n := len(list(t, a.open(t))); n != 1 {
		t.Errorf("%d flows in the namespace that has one", n)
	}
	if n := len(list(t, b.open(t))); n != 0 {
		t.Errorf("%d flows in the namespace that has none", n)
	}
}
