package ruleset

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// A userspace program serves TCP NodePorts on localhost (package localhost).
// NodePorts of other protocols are rejected there and counted, as in
// kube-proxy (KEP-6032). No row matches a TCP packet to localhost.

// RejectedOnLocalhost returns the protocols whose NodePorts localhost does not
// serve.
func RejectedOnLocalhost() []cluster.Protocol { return []cluster.Protocol{cluster.UDP, cluster.SCTP} }

// LocalhostCounter returns the counter of the packets of a protocol that are
// rejected on localhost.
func LocalhostCounter(p cluster.Protocol) *nft.Counter {
	return &nft.Counter{Name: "localhost-nodeport-rejected-" + p.String()}
}

// toLocalhost sends packets to NodePorts that localhost does not serve to a
// chain that rejects them. Other packets pass one comparison:
//
//	ip daddr 127.0.0.1 meta l4proto . th dport @localhost-nodeports goto reject-localhost
func (p *program) toLocalhost() nft.Rule {
	l := p.layout
	localhost := LocalhostAddr(l.family)
	return nft.NewRule(
		nft.Within(nft.Daddr(l.family), netip.PrefixFrom(localhost, localhost.BitLen())),
		nft.In(l.localhostNodePorts, l.nodePorts.key...),
		nft.Goto(chainLocalhost))
}

// rejectLocalhost counts packets by protocol and rejects them:
//
//	meta l4proto udp counter name "localhost-nodeport-rejected-udp"
//	meta l4proto sctp counter name "localhost-nodeport-rejected-sctp"
//	reject
func (p *program) rejectLocalhost() *nft.Chain {
	c := &nft.Chain{Name: chainLocalhost}
	for _, proto := range RejectedOnLocalhost() {
		c.Rules = append(c.Rules, nft.NewRule(nft.MatchL4Proto(uint8(proto)), nft.Count(LocalhostCounter(proto))))
	}
	c.Rules = append(c.Rules, nft.NewRule(nft.Reject(p.layout.family)))
	return c
}
