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
	return map[string]string{
		// The reverse path of translated packets is not the forward path.
		"net.ipv4.conf.all.rp_filter":     "0",
		"net.ipv4.conf.default.rp_filter": "0",
		// Pods resolve the node's underlay address on their own link.
		"net.ipv4.conf.all.arp_ignore":     "0",
		"net.ipv4.conf.default.arp_ignore": "0",
		"net.ipv4.conf.all.arp_filter":     "0",
		"net.ipv4.conf.default.arp_filter": "0",
		// A node that forwards a packet back to its link sends the sender a
		// redirect to a route around the node.
		"net.ipv4.conf.all.accept_redirects":     "0",
		"net.ipv4.conf.default.accept_redirects": "0",
		"net.ipv6.conf.all.accept_redirects":     "0",
		"net.ipv6.conf.default.accept_redirects": "0",
		// Interfaces have the addresses that the lab adds, without duplicate
		// address detection, and a link-local address derived from the
		// hardware address.
		"net.ipv6.conf.all.disable_ipv6":             "0",
		"net.ipv6.conf.default.disable_ipv6":         "0",
		"net.ipv6.conf.all.accept_dad":               "0",
		"net.ipv6.conf.default.accept_dad":           "0",
		"net.ipv6.conf.default.addr_gen_mode":        "0",
		"net.ipv6.conf.default.accept_ra":            "0",
		"net.ipv6.conf.default.autoconf":             "0",
		"net.ipv6.conf.default.router_solicitations": "0",
		// Each refused packet gets an ICMP error. By default the kernel sends
		// one unreachable message per second and address. These masks limit
		// unused types (IPv4 type 1, IPv6 type 200); the kernel refuses an
		// empty mask.
		"net.ipv4.icmp_ratemask": "2",
		"net.ipv6.icmp.ratemask": "200",
	}
}

// bridgeSysctls returns sysctls of br_netfilter: IP packets inside a bridge
// do not pass the packet filter.
func bridgeSysctls() map[string]string {
	return map[string]string{
		"net.bridge.bridge-nf-call-iptables":  "0",
		"net.bridge.bridge-nf-call-ip6tables": "0",
		"net.bridge.bridge-nf-call-arptables": "0",
	}
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
