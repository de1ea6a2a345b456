package lab

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// commonSysctls are set in every namespace before it has interfaces other than
// loopback. Several are inherited from the machine, so all that matter are set.
func commonSysctls() map[string]string {
	return map[string]string{
		// The reverse path of translated packets is not the forward path.
		"net.ipv4.conf.all.rp_filter":     "0",
		"net.ipv4.conf.default.rp_filter": "0",
		// Pods ask for the node's underlay address on their own link.
		"net.ipv4.conf.all.arp_ignore":     "0",
		"net.ipv4.conf.default.arp_ignore": "0",
		"net.ipv4.conf.all.arp_filter":     "0",
		"net.ipv4.conf.default.arp_filter": "0",
		// A node that forwards back to the link that a packet came from teaches
		// the sender a route around itself.
		"net.ipv4.conf.all.accept_redirects":     "0",
		"net.ipv4.conf.default.accept_redirects": "0",
		"net.ipv6.conf.all.accept_redirects":     "0",
		"net.ipv6.conf.default.accept_redirects": "0",
		// Addresses work at once, and only those that were given, beside one
		// link-local address derived from the hardware address.
		"net.ipv6.conf.all.disable_ipv6":             "0",
		"net.ipv6.conf.default.disable_ipv6":         "0",
		"net.ipv6.conf.all.accept_dad":               "0",
		"net.ipv6.conf.default.accept_dad":           "0",
		"net.ipv6.conf.default.addr_gen_mode":        "0",
		"net.ipv6.conf.default.accept_ra":            "0",
		"net.ipv6.conf.default.autoconf":             "0",
		"net.ipv6.conf.default.router_solicitations": "0",
		// Every refused packet is answered: by default the kernel sends one
		// unreachable message a second to an address. The masks name types that
		// nothing sends (IPv4 type 1, IPv6 type 200), an empty one is refused.
		"net.ipv4.icmp_ratemask": "2",
		"net.ipv6.icmp.ratemask": "200",
	}
}

// forwardingSysctls make a namespace a router.
func forwardingSysctls() map[string]string {
	return map[string]string{
		"net.ipv4.ip_forward":          "1",
		"net.ipv6.conf.all.forwarding": "1",
	}
}

// SetSysctl sets a kernel parameter of the namespace; the name has dots, as
// in net.ipv4.ip_forward.
func (n *Namespace) SetSysctl(name, value string) error {
	return n.SetSysctls(map[string]string{name: value})
}

// SetSysctls sets several kernel parameters of the namespace.
func (n *Namespace) SetSysctls(values map[string]string) error {
	return n.Do(func() error {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if err := os.WriteFile(sysctlFile(name), []byte(values[name]), 0o644); err != nil {
				return fmt.Errorf("namespace %s: sysctl: %w", n.Name, err)
			}
		}
		return nil
	})
}

// FilterBridgedFrames sets whether IP packets inside the namespace's bridges pass
// its packet filter. Kubernetes asks for it on nodes whose pods are behind a
// bridge. The default of a node is false. The error is os.ErrNotExist on a kernel
// without br_netfilter.
func (n *Namespace) FilterBridgedFrames(filter bool) error {
	value := "0"
	if filter {
		value = "1"
	}
	return n.SetSysctls(map[string]string{
		"net.bridge.bridge-nf-call-iptables":  value,
		"net.bridge.bridge-nf-call-ip6tables": value,
		"net.bridge.bridge-nf-call-arptables": "0",
	})
}

// Sysctl reads a kernel parameter of the namespace.
func (n *Namespace) Sysctl(name string) (string, error) {
	return within(n, func() (string, error) {
		value, err := os.ReadFile(sysctlFile(name))
		if err != nil {
			return "", fmt.Errorf("namespace %s: sysctl: %w", n.Name, err)
		}
		return strings.TrimSpace(string(value)), nil
	})
}

// sysctlFile is the file of a kernel parameter: what is in /proc/sys/net depends
// on the network namespace of the thread that opens it.
func sysctlFile(name string) string {
	return filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
}
