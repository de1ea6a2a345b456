package operator

import (
	"fmt"
	"net/netip"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/nft"
)

// source returns the source address, and its kind if --from does not name an
// address.
func (f *explainFlags) source(k *explain.Kernel, to netip.Addr) (addr netip.Addr, kind string, err error) {
	if to.IsLoopback() && f.from != "" && f.from != explain.FromNode {
		return addr, "", fmt.Errorf("--from %s: only this node can send packets to %s", f.from, to)
	}
	switch f.from {
	case "":
		return k.DefaultSource(to)
	case explain.FromPod:
		addr, ok, err := k.PodAddress()
		if err == nil && !ok {
			err = fmt.Errorf("--from pod: the rules do not recognize pods by a range of addresses: give the address " +
				"of a pod")
		}
		return addr, explain.FromPod, err
	case explain.FromNode:
		addr, err = k.NodeSource(to)
		return addr, explain.FromNode, err
	case explain.FromOutside:
		return explain.Outside(nft.FamilyOf(to)), explain.FromOutside, nil
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
