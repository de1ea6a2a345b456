package ruleset

import (
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
