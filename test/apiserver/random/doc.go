// Package random generates random clusters of Services with EndpointSlices, and
// changes of them, as a function of a seed. It writes them to an API server.
//
// The addresses are those of package lab: endpoints are the pods and nodes that
// the caller names, and have servers at FirstTarget and SecondTarget. The
// package does not run proxies and sends no traffic, except for the probes of a
// Sentinel.
package random

import "net/netip"

// Ports of the servers of endpoints.
const (
	FirstTarget  = 8080
	SecondTarget = 8081
)

// SecondAddrs returns more addresses of node1. Services have them as external
// IPs.
func SecondAddrs() [2]netip.Addr {
	return [2]netip.Addr{netip.MustParseAddr("172.30.0.21"), netip.MustParseAddr("fd00:30::21")}
}
