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

// references returns all cases that kube-proxy fails.
func references() []reference {
	return []reference{
		{
			"nftables iptables", "TestHairpin/nowhere",
			"an endpoint without a node is not masqueraded when it reaches itself",
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
