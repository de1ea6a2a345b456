package conntrack

import (
	"context"
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// inNamespace returns a connection to the table of a new namespace with flows.
// The test runs in the namespace, in parallel with others.
func inNamespace(t *testing.T, flows ...trackedFlow) *Conn {
	t.Helper()
	t.Parallel()
	nstest.Enter(t)
	c := open(t)
	add(t, c, flows...)
	if got, err := c.Entries(); got != len(flows) || err != nil {
		t.Errorf("got %d entries, %v, want %d", got, err, len(flows))
	}
	return c
}

// find returns the one flow of the table, with its ID.
func find(t *testing.T, c *Conn) trackedFlow {
	t.Helper()
	found := slices.Collect(mustYield(t, c.listFlows(Selection{})))
	if len(found) != 1 {
		t.Fatalf("got flows %v, want one", found)
	}
	return found[0]
}

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

// Between the dump and the deletion, the client sent again and was translated
// to another endpoint. The new flow often has the ID of the old one. A flow
// with the same tuples but another ID is another flow.
func TestDeleteFlowsKeepsReplacement(t *testing.T) {
	for name, endpoints := range map[string][4]string{
		"IPv4": {"10.0.0.1:4000", "10.96.0.10:53", "10.244.0.5:53", "10.244.0.6:53"},
		"IPv6": {"[fd00::1]:4000", "[fd96::10]:53", "[fd24::5]:53", "[fd24::6]:53"},
	} {
		t.Run(name, func(t *testing.T) {
			c := inNamespace(t)
			sameIDs := 0
			for range 8 {
				add(t, c, newFlow(udp, endpoints[0], endpoints[1], endpoints[2]))
				old := find(t, c)
				wantDeleted(t, c, 1, old)
				add(t, c, newFlow(udp, endpoints[0], endpoints[1], endpoints[3]))
				replacement := find(t, c)
				if replacement.id == old.id {
					sameIDs++
				}
				wantDeleted(t, c, 0, old)
				other := replacement
				other.id++
				wantDeleted(t, c, 0, other)
				wantDeleted(t, c, 1, replacement)
			}
			t.Logf("%d of 8 replacements had the ID of the old flow", sameIDs)
		})
	}
}

// Deletions need several system calls, and some of the flows no longer exist. A
// dump that was not read to its end does not affect the next one.
func TestDeleteManyFlows(t *testing.T) {
	flows := manyFlows(2000) // several parts of a dump
	c := inNamespace(t, flows...)
	for range 3 {
		for range mustYield(t, c.listFlows(Selection{})) {
			break
		}
	}
	wantFlows(t, c, flows)
	all := slices.Collect(mustYield(t, c.listFlows(Selection{})))
	wantDeleted(t, c, deleteBatch+3, all[:deleteBatch+3]...)
	wantDeleted(t, c, len(all)-deleteBatch-3, all...)
	wantDeleted(t, c, 0)
	wantFlows(t, c, nil)
}

// Deletions during a dump do not hide other flows.
func TestDeleteFlowsDuringDump(t *testing.T) {
	flows := manyFlows(2000)
	c := inNamespace(t, flows...)
	for flow := range mustYield(t, c.listFlows(Selection{Family: IPv4, Protocol: udp})) {
		wantDeleted(t, c, 1, flow)
	}
	wantFlows(t, c, nil)
}

// A context that ends also ends the dump. The next one is complete.
func TestCanceled(t *testing.T) {
	flows := manyFlows(1000)
	c := inNamespace(t, flows...)
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	err := c.Select(ctx, Selection{Family: IPv4}, func(Connection) {
		n++
		cancel()
	})
	if !errors.Is(err, context.Canceled) || n != 1 {
		t.Errorf("got %d connections, %v, want 1 and an error", n, err)
	}
	f := newFrontends()
	f.Update(change("10.96.0.10:53"))
	todo := f.take()
	if stats, err := c.clean(ctx, f, &todo); !errors.Is(err, context.Canceled) || stats.Dumps != 0 {
		t.Errorf("got %+v, %v, want no dumps, %v", stats, err, context.Canceled)
	}
	var stats Stats
	ctx, cancel = context.WithCancel(t.Context())
	err = c.cleanSelected(ctx, Selection{Family: IPv4}, func(trackedFlow) bool {
		n++
		cancel()
		return false
	}, &stats)
	if !errors.Is(err, context.Canceled) || n != 2 {
		t.Errorf("got %d flows, %v, want 1, %v", n-1, err, context.Canceled)
	}
	if stats, err = c.clean(t.Context(), f, &todo); err != nil || stats.Deleted != len(flows) {
		t.Errorf("after a canceled pass: got %+v, %v, want %d deleted flows", stats, err, len(flows))
	}
}

func TestLookUpLocal(t *testing.T) {
	c := inNamespace(t)
	addNode(t, c)
	for a, want := range map[string]bool{
		"192.0.2.1": true, "192.0.2.2": true, "127.0.0.1": true, "fd01::1": true, "::1": true,
		"198.51.100.7": false, "203.0.113.7": false /* no route */, "fd01::2": false, "192.0.2.255": false,
	} {
		if got, err := c.lookUpLocal(addr(a)); got != want || err != nil {
			t.Errorf("%s: got local %v, %v, want %v", a, got, err, want)
		}
	}
}

// listFlows yields the matching flows, whichever filters the kernel applies.
// exact reports whether each kernel from 5.10 on sends only these.
func TestListFlowsFilters(t *testing.T) {
	const icmp, bridge = unix.IPPROTO_ICMP, unix.NFPROTO_BRIDGE
	vip, vip6, ep := addr("10.96.0.10"), addr("fd96::10"), addr("10.244.0.5")
	flows := filterFlows()
	c := inNamespace(t, flows...)
	for name, tc := range map[string]struct {
		filter Selection
		exact  bool
	}{
		"no fields":        {Selection{}, true},
		"family":           {Selection{Family: IPv6}, true},
		"protocol alone":   {Selection{Protocol: udp}, false},
		"protocol":         {Selection{Family: IPv4, Protocol: udp}, true},
		"IPv6 protocol":    {Selection{Family: IPv6, Protocol: udp}, true},
		"destination":      {Selection{Family: IPv4, Protocol: udp, Addr: vip, Port: 53}, true},
		"address alone":    {Selection{Family: IPv4, Addr: vip}, true},
		"port alone":       {Selection{Family: IPv4, Port: 53}, false},
		"port":             {Selection{Family: IPv4, Protocol: udp, Port: 53}, true},
		"IPv6 port":        {Selection{Family: IPv6, Protocol: udp, Port: 53}, true},
		"IPv6 destination": {Selection{Family: IPv6, Protocol: udp, Addr: vip6, Port: 53}, false},
		"IPv6 address":     {Selection{Family: IPv6, Addr: vip6}, false},
		"other family":     {Selection{Family: IPv6, Addr: vip}, false},
		"unknown family":   {Selection{Family: bridge, Protocol: udp}, false},
		"ICMP with a port": {Selection{Family: IPv4, Protocol: icmp, Port: 53}, false},
		"no match":         {Selection{Family: IPv4, Protocol: udp, Addr: addr("10.96.0.99")}, true},
		"endpoint":         {Selection{Family: IPv4, Protocol: udp, Addr: ep, Port: 53, Replies: true}, true},
		"endpoints":        {Selection{Family: IPv6, Protocol: tcp, Port: 53, Replies: true}, true},
		"unused protocol":  {Selection{Family: IPv4, Protocol: 200}, true},
	} {
		want := slices.DeleteFunc(slices.Clone(flows), func(f trackedFlow) bool { return !tc.filter.matches(f) })
		before := c.received
		var got []trackedFlow
		for flow := range mustYield(t, c.listFlows(tc.filter)) {
			flow.id, flow.status = 0, 0
			got = append(got, flow)
		}
		if !sameFlows(got, want) {
			t.Errorf("%s: got %v\nwant %v", name, got, want)
		}
		received := c.received - before
		if tc.exact && received != len(want) {
			t.Errorf("%s: got %d flows from the kernel, want %d", name, received, len(want))
		}
		t.Logf("%s: the kernel sent %d flows, %d match", name, received, len(want))
	}
}

// TestSelectLimit reads a part of a list, and lists again.
func TestSelectLimit(t *testing.T) {
	flows := manyFlows(3000)
	c := inNamespace(t, flows...)
	for _, limit := range []int{100, 0, 100, len(flows)} {
		seen := make(map[uint32]struct{})
		err := c.Select(t.Context(), Selection{Family: IPv4, Limit: limit}, func(one Connection) {
			seen[one.ID] = struct{}{}
		})
		want := limit
		if limit == 0 {
			want = len(flows)
		}
		if err != nil || len(seen) != want {
			t.Errorf("limit %d: %d selected, %v", limit, len(seen), err)
		}
	}
}
