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
	const (
		unallocated = "it has no rules for unallocated addresses and unknown ports of service CIDRs"
		addresses   = "by default, NodePorts are served at all addresses of the node, also at 127.0.0.1"
		late        = "addresses that the node gets later have NodePorts after the next full sync, once an hour"
	)
	return []reference{
		{
			"nftables iptables", "TestUDPFlows/(none_left|service_deleted)",
			"flows of a UDP port stay when its last endpoint or the Service is removed",
		},
		{"nftables", "TestNodePortsFollowAddresses", late},
		{"iptables", "TestKindsOfServices/(other-proxy|headless|external-name)", unallocated},
		{"iptables", "TestAddresses/(ports|single)", unallocated},
		{"iptables", "TestAddresses/everywhere", addresses},
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
