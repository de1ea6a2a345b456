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

// cleanCase has changes, the flows in the kernel's table that a pass has to
// delete, and the flows that it must keep.
type cleanCase struct {
	changes []Change
	gone    []Flow
	stay    []Flow
}

// cleanChanges makes one pass for changes, with NodePorts on all local
// addresses.
func cleanChanges(ctx context.Context, c *Conn, changes ...Change) (Stats, error) {
	f := onAllAddrs()
	f.update(changes)
	return cleanUnchecked(ctx, c, f)
}

// cleanUnchecked makes the pass that frontends need.
func cleanUnchecked(ctx context.Context, c *Conn, f *frontends) (Stats, error) {
	todo := f.take()
	return c.clean(ctx, f, &todo)
}

func cleanCases() map[string]cleanCase {
	const client, vip, ep1, ep2 = "10.0.0.1:4000", "10.96.0.10:53", "10.244.0.5:53", "10.244.0.6:53"
	const client6, vip6, ep16, ep26 = "[fd00::1]:4000", "[fd96::10]:53", "[fd24::5]:53", "[fd24::6]:53"
	stays := []Flow{
		newFlow(tcp, client, vip, ep1),
		newFlow(tcp, client6, vip6, ep16),
		newFlow(udp, "10.0.0.1:5000", "10.96.0.11:53", ep1),
		newFlow(udp, "10.0.0.1:5001", ep1, ep1),
		newFlow(udp, "[fd00::1]:5000", "[fd96::11]:53", ep16),
	}
	return map[string]cleanCase{
		"one of two endpoints goes": {
			[]Change{change(vip, ep2), change(vip6, ep26)},
			[]Flow{newFlow(udp, client, vip, ep1), newFlow(udp, client6, vip6, ep16)},
			append(stays, newFlow(udp, "10.0.0.2:4000", vip, ep2), newFlow(udp, "[fd00::2]:4000", vip6, ep26)),
		},
		"first endpoint": {
			[]Change{change(vip, ep1), change(vip6, ep16)},
			[]Flow{newFlow(udp, client, vip, vip), newFlow(udp, client6, vip6, vip6)},
			append(stays, newFlow(udp, "10.0.0.2:4000", vip, ep1), newFlow(udp, "[fd00::2]:4000", vip6, ep16)),
		},
		"last endpoint": {
			[]Change{change(vip), change(vip6)},
			[]Flow{newFlow(udp, client, vip, ep1), newFlow(udp, client6, vip6, ep16)},
			stays,
		},
		"frontend goes": {
			[]Change{gone(vip), gone(vip6)},
			[]Flow{newFlow(udp, client, vip, ep1), newFlow(udp, client6, vip6, ep16)},
			append(stays, newFlow(udp, "10.0.0.2:4000", vip, vip), newFlow(udp, "[fd00::2]:4000", vip6, vip6)),
		},
		"nothing stale": {
			[]Change{change(vip, ep1, ep2)},
			nil,
			append(stays, newFlow(udp, client, vip, ep1), newFlow(udp, "10.0.0.2:4000", vip, ep2)),
		},
		"zones": {
			[]Change{change(vip, ep2)},
			[]Flow{
				newFlow(udp, client, vip, ep1),
				newFlow(udp, client, vip, ep1).inZone(7, ZoneBoth),
				newFlow(udp, "10.0.0.3:4000", vip, ep1).inZone(8, ZoneOriginal),
				newFlow(udp, "10.0.0.4:4000", vip, ep1).inZone(9, ZoneReply),
			},
			append(stays,
				newFlow(udp, client, vip, ep2).inZone(10, ZoneBoth),
				newFlow(udp, "10.0.0.3:4000", vip, ep2),
				newFlow(udp, "10.0.0.4:4001", vip, ep2).inZone(9, ZoneReply),
				newFlow(tcp, client, vip, ep1).inZone(7, ZoneBoth),
			),
		},
		"NodePort on all addresses": {
			[]Change{change("0.0.0.0:30053", ep2), change("[::]:30053", ep26)},
			[]Flow{
				newFlow(udp, client, "192.0.2.1:30053", ep1),
				newFlow(udp, client, "192.0.2.2:30053", "192.0.2.2:30053"),
				newFlow(udp, client6, "[fd01::1]:30053", ep16),
			},
			append(stays,
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

// node returns a namespace with the local addresses 192.0.2.1 to 192.0.2.3 (the
// second only has a local route) and fd01::1, and with a route to
// 198.51.100.0/24, which is not local.
func node(t *testing.T) namespace {
	t.Helper()
	ns := newNamespace(t)
	for _, a := range []netip.Addr{addr("192.0.2.1"), addr("192.0.2.3"), addr("fd01::1")} {
		ns.addAddr(t, "lo", a, a.BitLen())
	}
	ns.do(t, func() {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			t.Fatal(err)
		}
		const tableLocal, typeLocal, scopeHost = 255, 2, 254
		for _, route := range []netlink.Route{
			{LinkIndex: lo.Attrs().Index, Dst: mustIPNet("192.0.2.2/32"), Table: tableLocal, Type: typeLocal, Scope: scopeHost},
			{LinkIndex: lo.Attrs().Index, Dst: mustIPNet("198.51.100.0/24")},
			{LinkIndex: lo.Attrs().Index, Dst: mustIPNet("10.96.0.0/16")},
		} {
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
		// With more frontends, a pass makes a wide dump instead of narrow ones.
		for _, more := range []int{0, 20} {
			t.Run(fmt.Sprintf("%s/and %d more", name, more), func(t *testing.T) {
				ns := node(t)
				ns.injector(t).add(t, append(tc.gone, tc.stay...)...)
				c := ns.open(t)
				all := append(changes(more, portNumber), vipOnNode)
				all = append(append(changes(more, portNumber6), all...), tc.changes...)
				for _, want := range []int{len(tc.gone), 0} {
					stats, err := cleanChanges(context.Background(), c, all...)
					if err != nil || stats.Deleted != want {
						t.Errorf("%+v, %v, want %d deleted", stats, err, want)
					}
				}
				if got := list(t, c); !sameFlows(got, tc.stay) {
					t.Errorf("left: %v\nwant: %v", got, tc.stay)
				}
			})
		}
	}
}

// NodePorts on given addresses are cleaned on those, whether or not they are
// local. The former addresses are cleaned once.
func TestCleanNodeAddrs(t *testing.T) {
	const ep1, ep2 = "10.244.0.5:53", "10.244.0.6:53"
	former := newFlow(udp, "10.0.0.1:4000", "192.0.2.1:30053", ep2)
	stale := newFlow(udp, "10.0.0.1:4000", "203.0.113.7:30053", ep1)
	untranslated := newFlow(udp, "10.0.0.2:4000", "203.0.113.7:30053", "203.0.113.7:30053")
	stay := []Flow{
		newFlow(udp, "10.0.0.3:4000", "203.0.113.7:30053", ep2),
		newFlow(udp, "10.0.0.4:4000", "192.0.2.2:30053", ep1),               // local, but not listed
		newFlow(udp, "10.0.0.5:4000", "192.0.2.3:30053", ep1),               // a VIP
		newFlow(udp, "10.0.0.2:4000", "192.0.2.1:30053", "192.0.2.1:30053"), // former, never translated
	}
	ns := node(t)
	ns.injector(t).add(t, append(stay, former, stale, untranslated)...)
	c := ns.open(t)
	f := newFrontends()
	f.setNodeAddrs(IPv4, []netip.Addr{addr("192.0.2.1"), addr("192.0.2.3")})
	f.update([]Change{change("0.0.0.0:30053", ep2), change("192.0.2.3:30053", ep1)})
	f.take()
	f.setNodeAddrs(IPv4, []netip.Addr{addr("203.0.113.7"), addr("192.0.2.3")})
	for _, want := range []int{3, 0} {
		if stats, err := cleanUnchecked(t.Context(), c, f); err != nil || stats.Deleted != want {
			t.Errorf("%+v, %v, want %d deleted", stats, err, want)
		}
	}
	if got := list(t, c); !sameFlows(got, stay) {
		t.Errorf("left: %v\nwant: %v", got, stay)
	}
}

// A pass for one frontend does not list all flows.
func TestCleanReadsTheChangedFrontendOnly(t *testing.T) {
	ns := newNamespace(t)
	flows := append(manyFlows(1000), newFlow(udp, "10.0.0.1:4000", "10.96.0.11:53", "10.244.0.5:53"))
	ns.injector(t).add(t, flows...)
	c := ns.open(t)
	stats, err := cleanChanges(context.Background(), c, change("10.96.0.11:53"))
	if want := (Stats{Dumps: 1, Flows: 1, Deleted: 1}); err != nil || stats != want {
		t.Errorf("%+v, %v, want %+v", stats, err, want)
	}
	stats, err = cleanChanges(context.Background(), c)
	if err != nil || stats != (Stats{}) {
		t.Errorf("without changes: %+v, %v", stats, err)
	}
}

func TestCleanStopsWithItsContext(t *testing.T) {
	ns := newNamespace(t)
	flows := manyFlows(1000)
	ns.injector(t).add(t, flows...)
	c := ns.open(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	stats, err := cleanChanges(ctx, c, change("10.96.0.10:53"))
	if !errors.Is(err, context.Canceled) || stats.Dumps != 0 {
		t.Errorf("%+v, %v", stats, err)
	}
	ctx, cancel = context.WithCancel(context.Background())
	defer cancel()
	seen := 0
	err = c.cleanFilter(ctx, Filter{Family: IPv4}, func(Flow) bool {
		seen++
		cancel()
		return false
	}, &stats)
	if !errors.Is(err, context.Canceled) || seen != 1 {
		t.Errorf("%v after %d flows", err, seen)
	}
	stats, err = cleanChanges(context.Background(), c, change("10.96.0.10:53"))
	if err != nil || stats.Deleted != len(flows) {
		t.Errorf("afterwards: %+v, %v", stats, err)
	}
}

func TestEntries(t *testing.T) {
	ns := newNamespace(t)
	c := ns.open(t)
	if n, err := c.Entries(); n != 0 || err != nil {
		t.Errorf("%d, %v in an empty table", n, err)
	}
	ns.injector(t).add(t, filterFlows()...)
	if n, err := c.Entries(); n != len(filterFlows()) || err != nil {
		t.Errorf("%d, %v, want %d", n, err, len(filterFlows()))
	}
}

func TestIsLocal(t *testing.T) {
	c := node(t).open(t)
	for a, want := range map[string]bool{
		"192.0.2.1":    true,
		"192.0.2.2":    true,
		"127.0.0.1":    true,
		"fd01::1":      true,
		"::1":          true,
		"198.51.100.7": false,
		"203.0.113.7":  false, // no route
		"fd01::2":      false,
		"192.0.2.255":  false,
	} {
		if got, err := c.IsLocal(addr(a)); got != want || err != nil {
			t.Errorf("%s: %v, %v", a, got, err)
		}
	}
}
