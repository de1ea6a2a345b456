package main

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/test/apiserver/dataplane/result"
	"github.com/nftproxy/nftproxy/test/apiserver/scale/stage"
)

// known is how many clients of a Service with session affinity have an endpoint.
const known = 64

// has tells whether there is anything to measure: the first two variants know no session affinity.
func (s *subject) has(c result.Case) bool {
	return c.Traffic == result.TCP || c.Traffic == result.UDP || s.variant.Rules != result.None && s.variant.Rules != result.Static
}

// task returns what clients do in a measurement that makes at most that many connections.
func (s *subject) task(c result.Case, connections int) *task {
	t := &task{from: s.place.node, server: s.place.server, node: s.place.node, to: s.targets.tcp}
	all := nodeClients
	if c.Path == result.FromPod {
		t.from, all = s.place.pod, podClients
	}
	t.sources = sources(all, 1, 1)
	switch c.Traffic {
	case result.UDP:
		t.udp, t.to = true, s.targets.udp
	case result.KnownClient:
		t.to, t.sources = s.targets.affinity, sources(all, 1, known)
	case result.NewClient:
		t.to, t.sources = s.targets.affinity, sources(all, 1+known+s.fresh, connections)
		s.fresh += uint32(connections)
	}
	return t
}

// sources returns addresses of a range.
func sources(all netip.Prefix, first uint32, n int) []netip.Addr {
	out := make([]netip.Addr, n)
	for i := range out {
		out[i] = stage.Nth(all.Addr(), first+uint32(i))
	}
	return out
}
