package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
)

// cleanCase has changes, the flows that a pass has to delete, and the flows
// that it must keep.
type cleanCase struct {
	changes []FrontendChange
	stale   []trackedFlow
	kept    []trackedFlow
}

// cleanChanges makes one pass for changes, with NodePorts on all local
// addresses.
func cleanChanges(ctx context.Context, c *Conn, changes ...FrontendChange) (Stats, error) {
	f := onAllAddrs()
	f.Update(changes...)
	return cleanUnchecked(ctx, c, f)
}

// cleanUnchecked makes a pass for the recorded changes.
func cleanUnchecked(ctx context.Context, c *Conn, f *frontends) (Stats, error) {
	todo := f.take()
	return c.clean(ctx, f, &todo)
}

func cleanCases() map[string]cleanCase {
	const client, vip, ep1, ep2 = "10.0.0.1:4000", "10.96.0.10:53", "10.244.0.5:53", "10.244.0.6:53"
	const client6, vip6, ep16, ep26 = "[fd00::1]:4000", "[fd96::10]:53", "[fd24::5]:53", "[fd24::6]:53"
	kept := []trackedFlow{
		newFlow(tcp, client, vip, ep1),
		newFlow(tcp, client6, vip6, ep16),
		newFlow(udp, "10.0.0.1:5000", "10.96.0.11:53", ep1),
		newFlow(udp, "10.0.0.1:5001", ep1, ep1),
		newFlow(udp, "[fd00::1]:5000", "[fd96::11]:53", ep16),
	}
	return map[string]cleanCase{
		"one of two endpoints is gone": {
			[]FrontendChange{change(vip, ep2), change(vip6, ep26)},
			[]trackedFlow{newFlow(udp, client, vip, ep1), newFlow(udp, client6, vip6, ep16)},
			append(kept, newFlow(udp, "10.0.0.2:4000", vip, ep2), newFlow(udp, "[fd00::2]:4000", vip6, ep26)),
		},
		"first endpoint": {
			[]FrontendChange{change(vip, ep1), change(vip6, ep16)},
			[]trackedFlow{newFlow(udp, client, vip, vip), newFlow(udp, client6, vip6, vip6)},
			append(kept, newFlow(udp, "10.0.0.2:4000", vip, ep1), newFlow(udp, "[fd00::2]:4000", vip6, ep16)),
		},
		"last endpoint is gone": {
			[]FrontendChange{change(vip), change(vip6)},
			[]trackedFlow{newFlow(udp, client, vip, ep1), newFlow(udp, client6, vip6, ep16)},
			kept,
		},
		"frontend is gone": {
			[]FrontendChange{gone(vip), gone(vip6)},
			[]trackedFlow{newFlow(udp, client, vip, ep1), newFlow(udp, client6, vip6, ep16)},
			append(kept, newFlow(udp, "10.0.0.2:4000", vip, vip), newFlow(udp, "[fd00::2]:4000", vip6, vip6)),
		},
		"no stale flows": {
			[]FrontendChange{change(vip, ep1, ep2)},
			nil,
			append(kept, newFlow(udp, client, vip, ep1), newFlow(udp, "10.0.0.2:4000", vip, ep2)),
		},
		"zones": {
			[]FrontendChange{change(vip, ep2)},
			[]trackedFlow{
				newFlow(udp, client, vip, ep1),
				newFlow(udp, client, vip, ep1).inZone(7, zoneBoth),
				newFlow(udp, "10.0.0.3:4000", vip, ep1).inZone(8, zoneOriginal),
				newFlow(udp, "10.0.0.4:4000", vip, ep1).inZone(9, zoneReply),
			},
			append(kept,
				newFlow(udp, client, vip, ep2).inZone(10, zoneBoth),
				newFlow(udp, "10.0.0.3:4000", vip, ep2),
				newFlow(udp, "10.0.0.4:4001", vip, ep2).inZone(9, zoneReply),
				newFlow(tcp, client, vip, ep1).inZone(7, zoneBoth),
			),
		},
		"NodePort on all addresses": {
			[]FrontendChange{change("0.0.0.0:30053", ep2), change("[::]:30053", ep26)},
			[]trackedFlow{
				newFlow(udp, client, "192.0.2.1:30053", ep1),
				newFlow(udp, client, "192.0.2.2:30053", "192.0.2.2:30053"),
				newFlow(udp, client6, "[fd01::1]:30053", ep16),
			},
			append(kept,
				newFlow(udp, "10.0.0.2:4000", "192.0.2.1:30053", ep2),
				newFlow(tcp, "10.0.0.6:4000", "192.0.2.1:30053", ep1),
				newFlow(udp, client, "127.0.0.1:30053", "127.0.0.1:30053"),
				newFlow(udp, client, "198.51.100.7:30053", "198.51.100.7:30053"), // another host
				newFlow(udp, "10.0.0.3:4000", "10.96.0.11:30053", ep1),           // another service
				newFlow(udp, "10.0.0.4:4000", "192.0.2.3:30053", ep1),            // another service, on the node
				newFlow(udp, "10.0.0.5:4000", "203.0.113.7:30053", ep1),          // no route
				newFlow(udp, client6, "[fd01::7]:30053", "[fd01::7]:30053"),
			),
		},
	}
}

// newNode returns a namespace with the local addresses 192.0.2.1 to
// 192.0.2.3 and fd01::1. 192.0.2.2 only has a local route. The namespace
// also has a route to 198.51.100.0/24, which is not local.
func newNode(t *testing.T) namespace {
	t.Helper()
	ns := newNamespace(t)
	for _, a := range []netip.Addr{addr("192.0.2.1"), addr("192.0.2.3"), addr("fd01::1")} {
		ns.AddAddr(t, "lo", a, a.BitLen())
	}
	ns.Do(func() {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			t.Fatal(err)
		}
		const tableLocal, typeLocal, scopeHost = 255, 2, 254
		for _, route := range []netlink.Route{
			{Dst: mustIPNet("192.0.2.2/32"), Table: tableLocal, Type: typeLocal, Scope: scopeHost},
			{Dst: mustIPNet("198.51.100.0/24")},
			{Dst: mustIPNet("10.96.0.0/16")},
		} {
			route.LinkIndex = lo.Attrs().Index
			if err := netlink.RouteAdd(&route); err != nil {
				t.Fatalf("add %v: %v", route, err)
			}
		}
	})
	return ns
}

func mustIPNet(s string) *net.IPNet {
	ip, ipNet, err := net.ParseCIDR(s)
	if err != nil {
		panic(err)
	}
	ipNet.IP = ip
	return ipNet
}

func TestClean(t *testing.T) {
	vipOnNode := change("192.0.2.3:30053", "10.244.0.5:53")
	for name, tc := range cleanCases() {
		// With more frontends, a pass makes one wide dump instead of narrow
		// dumps.
		for _, more := range []int{0, 20} {
			t.Run(fmt.Sprintf("%s/%d more frontends", name, more), func(t *testing.T) {
				ns := newNode(t)
				ns.injector(t).add(t, append(tc.stale, tc.kept...)...)
				c := ns.open(t)
				all := append(changes(more, numberedPort), vipOnNode)
				all = append(append(changes(more, numberedPort6), all...), tc.changes...)
				for _, want := range []int{len(tc.stale), 0} {
					stats, err := cleanChanges(context.Background(), c, all...)
					if err != nil || stats.Deleted != want {
						t.Errorf("got %+v, %v, want %d deleted flows", stats, err, want)
					}
				}
				wantFlows(t, c, tc.kept)
			})
		}
	}
}

// A pass deletes flows to NodePorts on the given addresses, whether or not
// these are local. The first pass also deletes the flows on former
// addresses.
func TestCleanNodeAddrs(t *testing.T) {
	const ep1, ep2 = "10.244.0.5:53", "10.244.0.6:53"
	former := newFlow(udp, "10.0.0.1:4000", "192.0.2.1:30053", ep2)
	stale := newFlow(udp, "10.0.0.1:4000", "203.0.113.7:30053", ep1)
	untranslated := newFlow(udp, "10.0.0.2:4000", "203.0.113.7:30053", "203.0.113.7:30053")
	kept := []trackedFlow{
		newFlow(udp, "10.0.0.3:4000", "203.0.113.7:30053", ep2),
		newFlow(udp, "10.0.0.4:4000", "192.0.2.2:30053", ep1),               // local, but not listed
		newFlow(udp, "10.0.0.5:4000", "192.0.2.3:30053", ep1),               // a VIP
		newFlow(udp, "10.0.0.2:4000", "192.0.2.1:30053", "192.0.2.1:30053"), // former, never translated
	}
	ns := newNode(t)
	ns.injector(t).add(t, append(kept, former, stale, untranslated)...)
	c := ns.open(t)
	f := newFrontends()
	f.SetNodeAddrs(IPv4, []netip.Addr{addr("192.0.2.1"), addr("192.0.2.3")})
	f.Update(change("0.0.0.0:30053", ep2), change("192.0.2.3:30053", ep1))
	f.take()
	f.SetNodeAddrs(IPv4, []netip.Addr{addr("203.0.113.7"), addr("192.0.2.3")})
	for _, want := range []int{3, 0} {
		if stats, err := cleanUnchecked(t.Context(), c, f); err != nil || stats.Deleted != want {
			t.Errorf("got %+v, %v, want %d deleted flows", stats, err, want)
		}
	}
	wantFlows(t, c, kept)
}

// A pass for one frontend does not list all flows.
func TestCleanListsChangedFrontendOnly(t *testing.T) {
	ns := newNamespace(t)
	flows := append(manyFlows(1000), newFlow(udp, "10.0.0.1:4000", "10.96.0.11:53", "10.244.0.5:53"))
	ns.injector(t).add(t, flows...)
	c := ns.open(t)
	stats, err := cleanChanges(context.Background(), c, change("10.96.0.11:53"))
	if want := (Stats{Dumps: 1, Flows: 1, Deleted: 1}); err != nil || stats != want {
		t.Errorf("got %+v, %v, want %+v", stats, err, want)
	}
	stats, err = cleanChanges(context.Background(), c)
	if err != nil || stats != (Stats{}) {
		t.Errorf("without changes: got %+v, %v, want no work", stats, err)
	}
}

func TestCleanCanceled(t *testing.T) {
	ns := newNamespace(t)
	flows := manyFlows(1000)
	ns.injector(t).add(t, flows...)
	c := ns.open(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	stats, err := cleanChanges(ctx, c, change("10.96.0.10:53"))
	if !errors.Is(err, context.Canceled) || stats.Dumps != 0 {
		t.Errorf("got %+v, %v, want no dumps, %v", stats, err, context.Canceled)
	}
	ctx, cancel = context.WithCancel(context.Background())
	defer cancel()
	seen := 0
	err = c.cleanSelected(ctx, Selection{Family: IPv4}, func(trackedFlow) bool {
		seen++
		cancel()
		return false
	}, &stats)
	if !errors.Is(err, context.Canceled) || seen != 1 {
		t.Errorf("got %d flows, %v, want 1, %v", seen, err, context.Canceled)
	}
	stats, err = cleanChanges(context.Background(), c, change("10.96.0.10:53"))
	if err != nil || stats.Deleted != len(flows) {
		t.Errorf("after a canceled pass: got %+v, %v, want %d deleted flows", stats, err, len(flows))
	}
}
