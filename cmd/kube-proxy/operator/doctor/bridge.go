package doctor

import (
	"context"

	"github.com/vishvananda/netlink"
)

// checkBridgeNetfilter checks that answers between pods on one bridge pass
// connection tracking. Otherwise the client gets them from the address of the
// endpoint instead of the address of the Service.
func checkBridgeNetfilter(_ context.Context, n *node) Finding {
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

// podLinks returns the interfaces of type veth, and the bridges of which at
// least that many are ports.
func podLinks(ports int) (veths, bridges []netlink.Link, err error) {
	links, err := netlink.LinkList()
	count := make(map[int]int)
	for _, link := range links {
		if link.Type() == "veth" {
			veths = append(veths, link)
			count[link.Attrs().MasterIndex]++
		}
	}
	for _, link := range links {
		if link.Type() == "bridge" && count[link.Attrs().Index] >= ports {
			bridges = append(bridges, link)
		}
	}
	return veths, bridges, err
}
