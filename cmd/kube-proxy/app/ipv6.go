package app

import (
	"os"
	"strings"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier"
)

// newProxier returns a proxier for both families, or for IPv4 only on a host
// without IPv6.
func newProxier(config proxier.Config) (*proxier.Proxier, error) {
	if reason := ipv6Unavailable(); reason != "" {
		klog.InfoS("Serving IPv4 only", "reason", reason)
		return proxier.NewProxier(config, nft.IPv4)
	}
	return proxier.NewDualStackProxier(config)
}

// ipv6Unavailable returns the reason why this network namespace has no IPv6,
// "" if it has IPv6.
func ipv6Unavailable() string {
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		return "the kernel has no IPv6"
	}
	disabled, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
	if err == nil && strings.TrimSpace(string(disabled)) == "1" {
		return "net.ipv6.conf.all.disable_ipv6 is 1"
	}
	return ""
}
