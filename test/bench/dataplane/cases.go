package main

import (
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/apiserver/dataplane/result"
	"github.com/nftproxy/nftproxy/test/apiserver/scale/stage"
)

// known is how many clients of a Service with session affinity have an endpoint.
const known = 64

// has reports whether the case can be measured: without rules, and with the
// static rule, there is no session affinity.
func (s *subject) has(c result.Case) bool {
	return !c.Affinity() || s.variant.Rules != result.None && s.variant.Rules != result.Static
}

// task returns the task of a measurement. New clients of a Service with session
// affinity make at most that many connections.
func (s *subject) task(c result.Case, connections int) *task {
	t := &task{
		kind: unix.SOCK_STREAM, established: c.Established(),
		from: s.place.node, to: s.targets.tcp, server: s.place.server, node: s.place.node,
	}
	all := nodeClients
	if c.Path == result.FromPod {
		t.from, all = s.place.pod, podClients
	}
	t.sources = sources(all, 1, 1)
	switch c.Traffic {
	case result.UDP, result.EstablishedUDP:
		t.kind, t.to = unix.SOCK_DGRAM, s.targets.udp
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
