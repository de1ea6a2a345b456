package conntrack

import (
	"slices"
	"testing"
)

// wantDeleted deletes flows and compares the number of deleted flows.
func wantDeleted(t *testing.T, c *Conn, want int, flows ...trackedFlow) {
	t.Helper()
	got := 0
	for some := range slices.Chunk(flows, deleteBatch) {
		n, err := c.deleteFlows(some...)
		if err != nil {
			t.Fatal(err)
		}
		got += n
	}
	if got != want {
		t.Fatalf("got %d deleted flows, want %d", got, want)
	}
}

func TestDeleteFlows(t *testing.T) {
	ns := newNamespace(t)
	flows := filterFlows()
	ns.injector(t).add(t, flows...)
	c := ns.open(t)
	for i, flow := range flows {
		found := withID(t, c, flow)
		wantDeleted(t, c, 1, found)
		wantFlows(t, c, flows[i+1:])
		wantDeleted(t, c, 0, found)
	}
}

// withID returns a flow of the table with its ID.
func withID(t *testing.T, c *Conn, flow trackedFlow) trackedFlow {
	t.Helper()
	for found := range mustYield(t, c.listFlows(Selection{})) {
		flow.id, flow.status = found.id, found.status
		if found == flow {
			return found
		}
	}
	t.Fatalf("got no flow %v in the table", flow)
	return flow
}

// A flow with the same tuples in another zone is another flow.
func TestDeleteFlowsInZone(t *testing.T) {
	ns := newNamespace(t)
	flow := newFlow(udp, "10.0.0.1:4000", "10.96.0.10:53", "10.244.0.5:53")
	flows := []trackedFlow{flow, flow.inZone(7, zoneBoth), flow.inZone(8, zoneBoth)}
	ns.injector(t).add(t, flows...)
	c := ns.open(t)
	wantDeleted(t, c, 1, withID(t, c, flows[1]))
	wantFlows(t, c, []trackedFlow{flows[0], flows[2]})
}

// Between the dump and the deletion, the client sent again and was translated
// to another endpoint. The new flow often has the ID of the old one.
func TestDeleteFlowsKeepsReplacement(t *testing.T) {
	for name, flows := range map[string][2]trackedFlow{
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
				old := find(t, c, flows[0].original.src)
				wantDeleted(t, c, 1, old)
				in.add(t, flows[1])
				replacement := find(t, c, flows[0].original.src)
				if replacement.id == old.id {
					sameIDs++
				}
				wantDeleted(t, c, 0, old)
				wantDeleted(t, c, 1, replacement)
			}
			t.Logf("%d of 20 replacements had the ID of the old flow", sameIDs)
		})
	}
}

// A flow with the same tuples but another ID is another flow.
func TestDeleteFlowsByID(t *testing.T) {
	ns := newNamespace(t)
	flow := newFlow(udp, "10.0.0.1:4000", "10.96.0.10:53", "10.244.0.5:53")
	ns.injector(t).add(t, flow)
	c := ns.open(t)
	other := find(t, c, flow.original.src)
	other.id++
	wantDeleted(t, c, 0, other)
	wantFlows(t, c, []trackedFlow{flow})
}

// The deletions need several system calls, and some of the flows no longer
// exist.
func TestDeleteManyFlows(t *testing.T) {
	ns := newNamespace(t)
	ns.injector(t).add(t, manyFlows(3*deleteBatch+5)...)
	c := ns.open(t)
	var all []trackedFlow
	for flow := range mustYield(t, c.listFlows(Selection{})) {
		all = append(all, flow)
	}
	wantDeleted(t, c, deleteBatch+3, all[:deleteBatch+3]...)
	wantDeleted(t, c, len(all)-deleteBatch-3, all...)
	wantDeleted(t, c, 0, all...)
	wantDeleted(t, c, 0)
	wantFlows(t, c, nil)
}

// Deletions during a dump do not hide other flows.
func TestDeleteFlowsDuringDump(t *testing.T) {
	ns := newNamespace(t)
	flows := manyFlows(2000)
	ns.injector(t).add(t, flows...)
	c := ns.open(t)
	deleted := 0
	for flow := range mustYield(t, c.listFlows(Selection{Family: IPv4, Protocol: udp})) {
		n, err := c.deleteFlows(flow)
		if err != nil {
			t.Fatal(err)
		}
		deleted += n
	}
	if deleted != len(flows) {
		t.Errorf("got %d deleted flows, want %d", deleted, len(flows))
	}
	wantFlows(t, c, nil)
}
