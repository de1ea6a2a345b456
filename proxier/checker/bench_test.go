package checker

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/must"
)

// BenchmarkChecks measures a second of the checks of 2,000 Services with ten
// endpoints each, on a kernel without rules and connection tracking. Both ends
// of the connections are on this machine: the time of the endpoints counts,
// too. One in ten endpoints is silent.
func BenchmarkChecks(b *testing.B) {
	for _, seconds := range []int{1, 10, 300} {
		b.Run(fmt.Sprintf("period=%ds", seconds), func(b *testing.B) {
			nstest.Enter(b)
			addEndpoints(b)
			c := newTestChecker(b)
			check := cluster.DefaultHealthCheck()
			check.PeriodSeconds = seconds
			for i := range 2000 {
				var all []netip.AddrPort
				for j := range 10 {
					addr := netip.AddrFrom4([4]byte{10, byte(j), byte(i >> 8), byte(i)})
					all = append(all, netip.AddrPortFrom(addr, 80))
				}
				c.schedule.set(portOf(fmt.Sprintf("ns%d/web%d", i%20, i)), &check, all)
			}
			ctx, cancel := context.WithTimeout(b.Context(), time.Duration(b.N)*time.Second)
			defer cancel()
			before := nstest.CPUTime(b)
			b.ResetTimer()
			c.wake()
			c.Run(ctx)
			b.ReportMetric(float64(nstest.CPUTime(b)-before)/float64(b.Elapsed())*100, "%CPU")
			sent := 0.0
			for _, result := range []string{passed, failed, notSent} {
				sent += counted(b, c, result)
			}
			b.ReportMetric(sent/b.Elapsed().Seconds(), "checks/s")
		})
	}
}

// addEndpoints makes the addresses from 10.0.0.0 to 10.7.255.255 local, with
// servers on port 80. Packets to 10.8.0.0 and later ones are lost.
func addEndpoints(b *testing.B) {
	must.NoError(b, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "nowhere"}, PeerName: "peer"}))
	peer, err := netlink.LinkByName("peer")
	must.NoError(b, err)
	must.NoError(b, netlink.LinkSetUp(peer))
	for name, route := range map[string]netlink.Route{
		"lo":      {Dst: ipNet("10.0.0.0/13"), Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST},
		"nowhere": {Dst: ipNet("10.8.0.0/13"), Scope: netlink.SCOPE_LINK},
	} {
		link, err := netlink.LinkByName(name)
		must.NoError(b, err)
		must.NoError(b, netlink.LinkSetARPOff(link))
		must.NoError(b, netlink.LinkSetUp(link))
		must.NoError(b, netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet("192.0.2.77/32")}))
		route.LinkIndex = link.Attrs().Index
		must.NoError(b, netlink.RouteAdd(&route))
	}
	l, err := net.Listen("tcp4", "0.0.0.0:80")
	must.NoError(b, err)
	b.Cleanup(func() { l.Close() })
}

func ipNet(cidr string) *net.IPNet {
	_, n, _ := net.ParseCIDR(cidr)
	return n
}
