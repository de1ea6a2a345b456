package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/net"

	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// sysctl returns the value of a sysctl, such as net/ipv4/ip_forward. known is
// false if the kernel does not have it.
func (n *host) sysctl(name string) (value string, known bool) {
	data, err := os.ReadFile(n.path("proc/sys", name))
	if !errors.Is(err, fs.ErrNotExist) {
		n.failed = cmp.Or(n.failed, err)
	}
	return strings.TrimSpace(string(data)), err == nil
}

// number returns the number in a sysctl.
func (n *host) number(name string) (value int, known bool) {
	text, known := n.sysctl(name)
	if !known {
		return 0, false
	}
	value, err := strconv.Atoi(text)
	n.failed = cmp.Or(n.failed, err)
	return value, err == nil
}

// ipv4Conf has the IPv4 settings of each interface, and of `all`.
const ipv4Conf = "net/ipv4/conf/"

// interfacesWhere returns the interfaces, without lo, whose IPv4 setting meets
// a condition.
func (n *host) interfacesWhere(setting string, meets func(value int) bool) (names []string) {
	entries, err := os.ReadDir(n.path("proc/sys", ipv4Conf))
	n.failed = cmp.Or(n.failed, err)
	for _, e := range entries {
		name := e.Name()
		if name == "lo" || name == "all" || name == "default" {
			continue
		}
		// The name of an interface can contain a dot, but no slash.
		if value, known := n.number(ipv4Conf + name + "/" + setting); known && meets(value) {
			names = append(names, name)
		}
	}
	return names
}

// checkForwarding checks that the kernel forwards packets to endpoints.
func checkForwarding(_ context.Context, n *host) Finding {
	if v4, _ := n.number("net/ipv4/ip_forward"); v4 == 0 {
		return fail("net.ipv4.ip_forward is 0: packets from pods and from outside do not reach endpoints",
			"sysctl -w net.ipv4.ip_forward=1, and set it in /etc/sysctl.d")
	}
	off := n.interfacesWhere("forwarding", func(value int) bool { return value == 0 })
	if len(off) > 0 {
		return warn("packets that arrive on some interfaces are not forwarded: "+list(off, 5),
			"sysctl -w net.ipv4.conf."+dots(off[0])+".forwarding=1")
	}
	v6, hasIPv6 := n.number("net/ipv6/conf/all/forwarding")
	if hasIPv6 && v6 == 0 && n.servesIPv6() {
		return warn("net.ipv6.conf.all.forwarding is 0: IPv6 packets do not reach endpoints in pods",
			"sysctl -w net.ipv6.conf.all.forwarding=1, unless the cluster uses IPv4 only")
	}
	return ok("the kernel forwards packets")
}

// servesIPv6 reports whether the IPv6 table has Services, and the node a route
// to everywhere.
func (n *host) servesIPv6() bool {
	rows, err := endpointRows(nft.IPv6)
	return err == nil && len(rows) > 0
}

// dots returns the name of an interface in the syntax of sysctl, which swaps
// dots and slashes.
func dots(iface string) string { return strings.ReplaceAll(iface, ".", "/") }

// strict is the value of rp_filter that drops packets from a source to which
// the best route leads by another interface.
const strict = 1

// checkReversePath checks whether rp_filter can drop packets of Services.
func checkReversePath(_ context.Context, n *host) Finding {
	all, _ := n.number(ipv4Conf + "all/rp_filter")
	// The kernel uses the larger value.
	names := n.interfacesWhere("rp_filter", func(value int) bool { return max(all, value) == strict })
	if len(names) == 0 {
		return ok("no interface has a strict rp_filter")
	}
	return n.strictFinding(names)
}

// strictFinding is the finding for interfaces with a strict rp_filter. The
// kernel counts the packets that it dropped.
func (n *host) strictFinding(names []string) Finding {
	uplinks, err := uplinks(unix.AF_INET)
	if err != nil {
		return unknown(err)
	}
	rules, err := netlink.RuleList(unix.AF_INET)
	if err != nil {
		return unknown(err)
	}
	reason := ""
	const defaultRules = 3 // local, main, default
	for _, name := range uplinks {
		switch filtered := slices.Contains(names, name); {
		case filtered && len(uplinks) > 1:
			reason = fmt.Sprintf("%s has a strict rp_filter, and default routes leave by %s", name, list(uplinks, 3))
		case filtered && len(rules) > defaultRules:
			reason = fmt.Sprintf("%s has a strict rp_filter, and this node has policy routing (ip rule)", name)
		}
	}
	drops, err := n.outsideDrops(names)
	if err != nil {
		return unknown(err)
	}
	const remedy = "sysctl -w net.ipv4.conf.all.rp_filter=2 (loose), and set it in /etc/sysctl.d"
	dropped := n.reversePathDrops()
	switch {
	case dropped > 0:
		return warn(fmt.Sprintf("rp_filter dropped %d packets since this node started; it is strict on %s", dropped,
			list(names, 5)), remedy+"; nftproxy trace shows which packets are dropped now").With(drops...)
	case reason != "":
		return warn(reason+": packets whose answer would leave by another interface are dropped", remedy).With(drops...)
	case len(drops) > 0:
		return info("strict rp_filter drops packets of clients outside that arrive on some interfaces; it has dropped "+
			"none", remedy+", if such clients use these interfaces").With(drops...)
	}
	return info("strict rp_filter on "+list(names, 5)+": it has dropped no packet, and answers to clients outside "+
		"leave by the interface on which their packets arrive", "")
}

// reversePathDrops returns the number of packets that rp_filter dropped, 0 if
// it is unknown.
func (n *host) reversePathDrops() (dropped uint64) {
	text, _ := os.ReadFile(n.path("proc/thread-self/net/netstat"))
	lines := strings.Split(string(text), "\n")
	for i := 0; i+1 < len(lines); i += 2 { // names, then values
		values := strings.Fields(lines[i+1])
		for j, name := range strings.Fields(lines[i]) {
			if name == "IPReversePathFilter" && j < len(values) {
				dropped, _ = strconv.ParseUint(values[j], 10, 64)
			}
		}
	}
	return dropped
}

// checkRouteLocalnet checks that other hosts cannot reach services on
// 127.0.0.1 (CVE-2020-8558).
func checkRouteLocalnet(_ context.Context, n *host) Finding {
	open := n.interfacesWhere("route_localnet", func(value int) bool { return value != 0 })
	if all, _ := n.number(ipv4Conf + "all/route_localnet"); all != 0 {
		open = append([]string{"all"}, open...)
	}
	if len(open) == 0 {
		return ok("route_localnet is 0 on all interfaces")
	}
	return warn("route_localnet is 1 on "+list(open, 5)+
		": other hosts and pods can reach programs of this node that listen on 127.0.0.1 only (CVE-2020-8558)",
		"sysctl -w net.ipv4.conf."+dots(open[0])+".route_localnet=0; kube-proxy's iptables mode sets it, "+
			"nftproxy does not need it")
}

// checkBridgeNetfilter checks that answers between pods on one bridge pass
// connection tracking. Otherwise the client gets them from the address of the
// endpoint instead of the address of the Service.
func checkBridgeNetfilter(_ context.Context, n *host) Finding {
	bridges, err := podBridges()
	switch {
	case err != nil:
		return unknown(err)
	case len(bridges) == 0:
		return ok("no bridge connects pods")
	}
	settings := []string{"net/bridge/bridge-nf-call-iptables"}
	if n.servesIPv6() {
		settings = append(settings, "net/bridge/bridge-nf-call-ip6tables")
	}
	for _, name := range settings {
		value, known := n.number(name)
		if known && value == 1 {
			continue
		}
		state := "0"
		if !known {
			state = "missing"
		}
		return warn("bridge "+list(bridges, 3)+" connects pods, and "+name+" is "+state+": a pod cannot "+
			"reach an endpoint on its own bridge by the address of the Service",
			"modprobe br_netfilter; sysctl -w "+name+"=1, and make both permanent")
	}
	return ok("packets on bridge " + list(bridges, 3) + " pass netfilter")
}

// podBridges returns the bridges with at least two ports of type veth.
func podBridges() (names []string, err error) {
	_, bridges, err := podLinks(2)
	for _, link := range bridges {
		names = append(names, link.Attrs().Name)
	}
	return names, err
}

// defaultNodePorts is the default of the API server
// (--service-node-port-range).
func defaultNodePorts() net.PortRange { return net.PortRange{Base: 30000, Size: 2768} }

// checkNodePortRange checks whether this node chooses NodePorts as source ports
// of its own connections. The kernel then takes an answer to the port for a new
// connection to the Service, or the reverse.
func checkNodePortRange(_ context.Context, n *host) Finding {
	text, known := n.sysctl("net/ipv4/ip_local_port_range")
	if !known {
		return skipped("the kernel does not have the setting")
	}
	bounds := strings.Join(slices.Compact(strings.Fields(text)), "-")
	local, err := net.ParsePortRange(bounds)
	if err != nil {
		return unknown(err)
	}
	reserved, err := n.reservedPorts()
	if err != nil {
		return unknown(err)
	}
	chosen := func(port int) bool {
		return local.Contains(port) &&
			!slices.ContainsFunc(reserved, func(r *net.PortRange) bool { return r.Contains(port) })
	}
	return nodePortFinding(bounds, chosen, nodePorts())
}

func nodePortFinding(local string, chosen func(int) bool, inUse []int) Finding {
	remedy := "sysctl -w net.ipv4.ip_local_reserved_ports=30000-32767 (the NodePort range of the cluster), or change " +
		"net.ipv4.ip_local_port_range"
	for _, port := range inUse {
		if chosen(port) {
			return warn(fmt.Sprintf("NodePort %d is in net.ipv4.ip_local_port_range (%s) and not reserved: a "+
				"connection of this node can use it as its source port, and clients of the NodePort collide with it",
				port, local), remedy)
		}
	}
	for i := range defaultNodePorts().Size {
		if chosen(defaultNodePorts().Base + i) {
			return warn(fmt.Sprintf("net.ipv4.ip_local_port_range (%s) overlaps the default range of NodePorts (%s)",
				local, defaultNodePorts()), remedy)
		}
	}
	return ok(fmt.Sprintf("net.ipv4.ip_local_port_range (%s) contains no NodePort", local))
}

// reservedPorts returns the ports that the kernel does not choose.
func (n *host) reservedPorts() (ranges []*net.PortRange, err error) {
	text, _ := n.sysctl("net/ipv4/ip_local_reserved_ports")
	for part := range strings.SplitSeq(text, ",") {
		r, err := net.ParsePortRange(part)
		if err != nil {
			return nil, err
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// nodePorts returns some NodePorts of the tables.
func nodePorts() (ports []int) {
	for _, f := range families() {
		rows, _ := sampleRows(f, ruleset.NodePortSet) // checkTable reports the table of another program
		for _, row := range rows {
			if port, ok := ruleset.NodePortOf(row); ok {
				ports = append(ports, int(port))
			}
		}
	}
	slices.Sort(ports)
	return ports
}

// Thresholds of the fill of connection tracking in percent. A full table drops
// new connections.
const (
	fillWarn = 80
	fillFail = 95
)

// checkConntrack checks how full connection tracking is.
func checkConntrack(_ context.Context, n *host) Finding {
	usage, err := conntrack.ReadUsage(n.Root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return skipped("connection tracking is not loaded")
	case err != nil:
		return unknown(err)
	case usage.Max == 0:
		return ok("connection tracking has no limit")
	}
	percent := int(usage.Full() * 100)
	fill := fmt.Sprintf("connection tracking has %d of %d entries (%d %%)", usage.Entries, usage.Max, percent)
	const remedy = "raise conntrack.maxPerCore or conntrack.min in the configuration of the proxy (net.netfilter." +
		"nf_conntrack_max); nftproxy top shows which Service has the connections"
	switch {
	case percent >= fillFail:
		return fail(fill+": new connections are dropped, or will be soon", remedy)
	case percent >= fillWarn:
		return warn(fill+": when it is full, new connections are dropped", remedy)
	}
	return ok(fill)
}

// checkLiberal reports whether packets outside of the TCP window are
// translated.
func checkLiberal(_ context.Context, n *host) Finding {
	value, known := n.number("net/netfilter/nf_conntrack_tcp_be_liberal")
	switch {
	case !known:
		return skipped("connection tracking is not loaded")
	case value != 0:
		return ok("nf_conntrack_tcp_be_liberal is 1")
	}
	return ok("nf_conntrack_tcp_be_liberal is 0, the default: packets outside of the TCP window are not translated")
}
