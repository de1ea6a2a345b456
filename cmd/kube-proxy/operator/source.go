package operator

import (
	"fmt"
	"net/netip"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/nft"
)

// Sources of packets that --from names.
const (
	fromPod     = "pod"
	fromNode    = "node"
	fromOutside = "outside"
)

// source returns the source address, and its kind if --from does not name an
// address.
func (f *explainFlags) source(k *explain.Kernel, to netip.Addr) (addr netip.Addr, kind string, err error) {
	if to.IsLoopback() && f.from != "" && f.from != fromNode {
		return addr, "", fmt.Errorf("--from %s: only this node can send packets to %s", f.from, to)
	}
	switch f.from {
	case "":
		if to.IsLoopback() {
			return to, fromNode, nil
		}
		if addr, ok, err := k.PodAddress(); ok || err != nil {
			return addr, fromPod, err
		}
		addr, err = k.NodeSource(to)
		return addr, fromNode, err
	case fromPod:
		addr, ok, err := k.PodAddress()
		if err == nil && !ok {
			err = fmt.Errorf("--from pod: the rules do not recognize pods by a range of addresses: give the address " +
				"of a pod")
		}
		return addr, fromPod, err
	case fromNode:
		addr, err = k.NodeSource(to)
		return addr, fromNode, err
	case fromOutside:
		return explain.Outside(nft.FamilyOf(to)), fromOutside, nil
	}
	if addr, err = netip.ParseAddr(f.from); err != nil {
		return addr, "", fmt.Errorf("--from %q is not an address, pod, node or outside", f.from)
	}
	return addr, "", nil
}

// fromFamily reports whether the source can be of a family: --from is not an
// address of the other one.
func (f *explainFlags) fromFamily(family nft.Family) bool {
	addr, err := netip.ParseAddr(f.from)
	return err != nil || family.Of(addr)
}
