package follow

import (
	"net/netip"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// portKey identifies a service port of a family.
type portKey struct {
	family nft.Family
	cluster.PortName
	protocol cluster.Protocol
}

func keyOf(f nft.Family, p *ruleset.Plan) portKey { return portKey{f, p.Name(), p.Port.Protocol} }

// destination returns the address and port that clients of a frontend send to.
// A NodePort has the unspecified address.
func destination(family nft.Family, f ruleset.Frontend) netip.AddrPort {
	if f.IsNodePort() {
		return netip.AddrPortFrom(family.Unspecified(), f.Port)
	}
	return netip.AddrPortFrom(f.Addr, f.Port)
}

// frontendsOf returns the frontends of a service port, none if it has another
// protocol.
func frontendsOf(p *ruleset.Plan, protocol cluster.Protocol) []ruleset.ServedFrontend {
	if p == nil || p.Port.Protocol != protocol {
		return nil
	}
	return p.Frontends
}

// tcpNodePort returns the TCP NodePort that the service port of a plan owns.
// Its Port is 0 if it owns none.
func tcpNodePort(p *ruleset.Plan) ruleset.ServedFrontend {
	for _, f := range frontendsOf(p, cluster.TCP) {
		if f.IsNodePort() {
			return f
		}
	}
	return ruleset.ServedFrontend{}
}
