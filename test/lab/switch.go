package lab

import (
	"fmt"
	"net/netip"
)

// uplink is the name of the interface that joins a client, node or pod to the
// rest of the lab.
const uplink = "eth0"

const switchBridge = "br0"

// newSwitch makes the namespace with the bridge that joins client and nodes.
// It only passes frames: without IPv6 it has no address, and sends none itself.
func (l *Lab) newSwitch() (*Namespace, error) {
	ns, err := l.newNamespace("switch")
	if err != nil {
		return nil, err
	}
	err = ns.SetSysctls(map[string]string{
		"net.ipv6.conf.all.disable_ipv6":     "1",
		"net.ipv6.conf.default.disable_ipv6": "1",
	})
	if err != nil {
		return nil, err
	}
	return ns, ns.addBridge(switchBridge)
}

// plug joins a namespace to the switch, with its underlay addresses.
func (l *Lab) plug(ns *Namespace) error {
	port := end{ns: l.wire, name: "to-" + ns.Name, bridge: switchBridge}
	if err := connect(end{ns: ns, name: uplink}, port); err != nil {
		return err
	}
	for _, prefix := range []netip.Prefix{
		netip.PrefixFrom(ns.IPv4, underlayBits4), netip.PrefixFrom(ns.IPv6, underlayBits6),
	} {
		if err := ns.AddAddr(prefix); err != nil {
			return fmt.Errorf("underlay: %w", err)
		}
	}
	return nil
}
