package main

import (
	"regexp"
	"slices"
	"strings"
)

// reference is a group of cases that kube-proxy 1.36.3 fails.
type reference struct {
	modes  string // of kube-proxy, separated by spaces
	cases  string // a regular expression of names
	reason string
}

// references returns the cases that kube-proxy was seen to fail.
func references() []reference {
	return []reference{
		{
			"nftables iptables", "TestUDPFlows/(none_left|service_deleted)",
			"flows of a UDP port stay when its last endpoint or the Service is removed",
		},
		{
			"nftables", "TestNodePortsFollowAddresses",
			"addresses that the node gets later have NodePorts after the next full sync, once an hour",
		},
		{
			"iptables", "TestAddresses/(ports|single)|TestKindsOfServices/(other-proxy|headless|external-name)|" +
				"TestAffinityLocal|TestBridgeNetfilter/(bridge|elsewhere)|TestServiceCIDRs/whole_range/(high|low)",
			"it has no rules for unallocated addresses and unknown ports of service CIDRs",
		},
		{
			"iptables", "TestAddresses/everywhere|TestNodePortAddresses/.*|TestNodePortsFollowAddresses",
			"by default, NodePorts are served at all addresses of the node, also at 127.0.0.1; without endpoints, " +
				"they are refused at all addresses, whatever nodePortAddresses is",
		},
		{
			"iptables", "TestNoEndpoints/.*|TestTrafficPolicyLocal/(external|internal)-none|TestSCTP/none|" +
				"TestUDPFlows/none_usable|TestScaling",
			"without endpoints, external and LoadBalancer IPs do not refuse connections of the node itself",
		},
		{
			"iptables", "TestSourceRanges/empty",
			"without endpoints, clients outside of loadBalancerSourceRanges are refused instead of dropped",
		},
		{
			"iptables", "TestAffinity/(slices_change|timeout_changes|other_Services_change|restart|" +
				"endpoints_change_while_no_proxy_runs)",
			"clients with affinity get other endpoints when the EndpointSlices of the Service change",
		},
	}
}

// known returns why kube-proxy fails a case in a mode, "" if it does not.
func known(mode, name string) string {
	for _, r := range references() {
		if slices.Contains(strings.Fields(r.modes), mode) && regexp.MustCompile("^("+r.cases+")$").MatchString(name) {
			return r.reason
		}
	}
	return ""
}
