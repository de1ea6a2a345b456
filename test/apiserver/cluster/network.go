package cluster

import (
	"errors"
	"net/netip"

	"github.com/nftproxy/nftproxy/test/lab"
)

// Isolate loses all packets between a namespace and the control plane, in both directions and without a word, as a broken network does.
// Connections stay open at both ends.
func (c *Cluster) Isolate(from *lab.Namespace) error {
	return c.eachWay(from, func(at *lab.Namespace, to netip.Prefix) error { return at.Blackhole(to) })
}

// Rejoin takes back what Isolate did.
func (c *Cluster) Rejoin(from *lab.Namespace) error {
	return c.eachWay(from, func(at *lab.Namespace, to netip.Prefix) error { return at.RemoveRoute(to) })
}

func (c *Cluster) eachWay(from *lab.Namespace, change func(at *lab.Namespace, to netip.Prefix) error) error {
	var errs []error
	for _, way := range [][2]*lab.Namespace{{from, c.config.Namespace}, {c.config.Namespace, from}} {
		for _, addr := range way[1].Addrs() {
			errs = append(errs, change(way[0], netip.PrefixFrom(addr, addr.BitLen())))
		}
	}
	return errors.Join(errs...)
}
