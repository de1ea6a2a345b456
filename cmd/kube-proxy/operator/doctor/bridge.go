package doctor

import (
	"context"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/nft"
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
	if rows, err := endpointRows(nft.IPv6); err == nil && len(rows) > 0 {
		settings = append(settings, "net/bridge/bridge-nf-call-ip6tables")
	}
	for _, name := range settings {
		value, known, err := n.number(name)
		if err != nil {
			return unknown(err)
		}
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
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	ports := make(map[int]int)
	for _, link := range links {
		if link.Type() == "veth" {
			ports[link.Attrs().MasterIndex]++
		}
	}
	for _, link := range links {
		if link.Type() == "bridge" && ports[link.Attrs().Index] > 1 {
			names = append(names, link.Attrs().Name)
		}
	}
	return names, nil
}
