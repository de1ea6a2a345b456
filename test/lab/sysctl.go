package lab

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// commonSysctls returns the sysctls of every namespace, which are set while
// it has no interface but loopback. A namespace inherits several values from
// the machine.
func commonSysctls() map[string]string {
	values := map[string]string{
		"net.ipv6.conf.all.accept_dad": "0",
		// Each refused packet gets an ICMP error. By default the kernel sends
		// one unreachable message per second and address. These masks limit
		// unused types (IPv4 type 1, IPv6 type 200); the kernel refuses an
		// empty mask.
		"net.ipv4.icmp_ratemask": "2",
		"net.ipv6.icmp.ratemask": "200",
	}
	for _, name := range []string{
		// The reverse path of translated packets is not the forward path.
		"ipv4.conf.%s.rp_filter",
		// Pods resolve the node's underlay address on their own link.
		"ipv4.conf.%s.arp_ignore", "ipv4.conf.%s.arp_filter",
		// A node that forwards a packet back to its link sends the sender a
		// redirect to a route around the node.
		"ipv4.conf.%s.accept_redirects", "ipv6.conf.%s.accept_redirects", "ipv6.conf.%s.disable_ipv6",
	} {
		values["net."+fmt.Sprintf(name, "all")], values["net."+fmt.Sprintf(name, "default")] = "0", "0"
	}
	// Interfaces have the addresses that the lab adds, without duplicate address
	// detection, and a link-local address derived from the hardware address.
	for _, name := range []string{"accept_dad", "addr_gen_mode", "accept_ra", "autoconf", "router_solicitations"} {
		values["net.ipv6.conf.default."+name] = "0"
	}
	return values
}

// bridgeSysctls returns sysctls of br_netfilter: IP packets inside a bridge
// do not pass the packet filter.
func bridgeSysctls() map[string]string {
	const prefix = "net.bridge.bridge-nf-call-"
	return map[string]string{prefix + "iptables": "0", prefix + "ip6tables": "0", prefix + "arptables": "0"}
}

// SetSysctl sets a kernel parameter of the namespace. The name has dots:
// net.ipv4.ip_forward.
func (n *Namespace) SetSysctl(name, value string) error {
	return n.setSysctls(map[string]string{name: value})
}

func (n *Namespace) setSysctls(values map[string]string) error {
	return n.Do(func() error {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			// The content of /proc/sys/net depends on the namespace of the
			// thread.
			file := filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
			if err := os.WriteFile(file, []byte(values[name]), 0o644); err != nil {
				return fmt.Errorf("namespace %s: sysctl: %w", n.Name, err)
			}
		}
		return nil
	})
}
