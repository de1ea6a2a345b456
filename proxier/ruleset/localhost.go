package ruleset

import (
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// A userspace program serves TCP NodePorts on localhost (package localhost), if
// Config.Localhost. With the feature gate, NodePorts that it does not serve are
// rejected there and counted, as in kube-proxy (KEP-6032), so that no other
// program gets their packets.

// RejectedOnLocalhost returns the protocols whose NodePorts are rejected on the
// loopback addresses of a family.
func (c *Config) RejectedOnLocalhost(f nft.Family) []cluster.Protocol {
	switch {
	case !c.LocalhostNodePorts:
		return nil
	case c.Localhost(f):
		return localhostProtocols[:2]
	}
	return localhostProtocols[:]
}

// localhostProtocols are the protocols whose NodePorts localhost can reject. It
// serves the last one.
var localhostProtocols = [...]cluster.Protocol{cluster.UDP, cluster.SCTP, cluster.TCP}

// LocalhostCounters returns the counters of packets that can be rejected on
// localhost, by protocol.
func LocalhostCounters() map[cluster.Protocol]*nft.Counter {
	all := make(map[cluster.Protocol]*nft.Counter)
	for _, p := range localhostProtocols {
		all[p] = LocalhostCounter(p)
	}
	return all
}

// LocalhostCounter returns the counter of the packets of a protocol that are
// rejected on localhost.
func LocalhostCounter(p cluster.Protocol) *nft.Counter {
	return &nft.Counter{Name: "localhost-nodeport-rejected-" + p.String()}
}
