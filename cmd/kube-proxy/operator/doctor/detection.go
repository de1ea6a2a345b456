package doctor

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// checkLocalDetection checks that detectLocalMode recognizes the pods of this
// node.
func checkLocalDetection(context.Context, *host) Finding {
	finding := skipped("no Services in the tables of nftproxy")
	decided := func() bool { return finding.Result != OK && finding.Result != Skipped }
	err := node.InTables(func(k *node.Kernel) error {
		f := k.Table.Family
		rows, err := endpointRows(f)
		if noRows := err == nil && len(rows) == 0; noRows || decided() { // the cluster may not use the family
			return nil
		}
		pods, known, err := k.Pods()
		if err == nil {
			finding = detectionFinding(f, pods, known)
		}
		return err
	})
	if err != nil && !errors.Is(err, node.ErrNoTable) && !decided() {
		return unknown(err)
	}
	return finding
}

func detectionFinding(f nft.Family, pods ruleset.Pods, known bool) Finding {
	seen, err := seePods(f)
	if err != nil {
		return unknown(err)
	}
	family := f.Name()
	const remedy = "set detectLocalMode and clusterCIDR (or detectLocal.bridgeInterface, " +
		"detectLocal.interfaceNamePrefix) to what the CNI plugin of this node uses"
	const effect = ": pods count as clients outside of the cluster (masqueraded, and no short-circuit with " +
		"externalTrafficPolicy Local)"
	switch {
	case !known && len(seen.interfaces) > 0:
		return info(family+": the rules recognize no pods"+effect, remedy)
	case !known || len(seen.interfaces) == 0:
		return skipped("this node has no interfaces of pods")
	case seen.match(pods):
		return ok("the rules recognize pods by " + pods.String())
	case pods.Range.IsValid() && len(seen.addrs) == 0:
		return skipped("no " + family + " address of a pod of this node is known")
	}
	reason := family + ": the rules recognize pods by " + pods.String() + ", but no pod of this node matches" + effect
	return warn(reason, remedy).With("interfaces of pods: "+list(seen.interfaces, 5),
		"addresses of pods: "+list(seen.addrs, 5))
}

// seenPods is what the kernel knows about the pods of the node.
type seenPods struct {
	interfaces []string       // of type veth, and bridges that they belong to
	addrs      []netip.Prefix // of neighbours and routes on these interfaces
}

// match reports whether a pod is recognized. A range must contain an address
// that is known.
func (s *seenPods) match(pods ruleset.Pods) bool {
	if pods.Range.IsValid() {
		return slices.ContainsFunc(s.addrs, pods.Range.Overlaps)
	}
	return slices.ContainsFunc(s.interfaces, pods.HasInterface)
}

func seePods(f nft.Family) (s seenPods, err error) {
	indexes, err := s.findInterfaces()
	if err != nil {
		return s, err
	}
	neighbours, err := netlink.NeighList(0, int(f))
	if err != nil {
		return s, err
	}
	for _, n := range neighbours {
		if addr, ok := netip.AddrFromSlice(n.IP); ok && indexes[n.LinkIndex] && n.State&unix.NUD_FAILED == 0 {
			s.add(addr.Unmap(), addr.Unmap().BitLen())
		}
	}
	routes, err := netlink.RouteList(nil, int(f))
	if err != nil {
		return s, err
	}
	for _, r := range routes {
		if r.Dst == nil || !indexes[r.LinkIndex] || r.Gw != nil {
			continue
		}
		if addr, ok := netip.AddrFromSlice(r.Dst.IP); ok {
			ones, _ := r.Dst.Mask.Size()
			s.add(addr.Unmap(), ones)
		}
	}
	return s, nil
}

// add adds an address with the length of its prefix. Link local addresses and
// the default route are not addresses of pods.
func (s *seenPods) add(addr netip.Addr, bits int) {
	if bits > 0 && !addr.IsLinkLocalUnicast() && !addr.IsMulticast() {
		s.addrs = append(s.addrs, netip.PrefixFrom(addr, bits))
	}
}

// findInterfaces finds the interfaces of pods. The uplink of a node that is a
// container is also of type veth.
func (s *seenPods) findInterfaces() (map[int]bool, error) {
	veths, bridges, err := podLinks(1)
	if err != nil {
		return nil, err
	}
	exits, err := uplinks(unix.AF_INET)
	exits6, err6 := uplinks(unix.AF_INET6)
	exits = append(exits, exits6...)
	indexes := make(map[int]bool)
	for _, link := range append(veths, bridges...) {
		if name := link.Attrs().Name; !slices.Contains(exits, name) {
			s.interfaces = append(s.interfaces, name)
			indexes[link.Attrs().Index] = true
		}
	}
	return indexes, errors.Join(err, err6)
}

// podLinks returns the interfaces of type veth, and the bridges of which at
// least that many are ports.
func podLinks(ports int) (veths, bridges []netlink.Link, err error) {
	links, err := netlink.LinkList()
	count := make(map[int]int)
	for _, link := range links {
		if link.Type() == "veth" {
			veths = append(veths, link)
			count[link.Attrs().MasterIndex]++
		}
	}
	for _, link := range links {
		if link.Type() == "bridge" && count[link.Attrs().Index] >= ports {
			bridges = append(bridges, link)
		}
	}
	return veths, bridges, err
}

// uplinks returns the interfaces of the default routes of an address family.
func uplinks(family int) (names []string, err error) {
	routes, err := netlink.RouteListFiltered(family, &netlink.Route{Dst: nil}, netlink.RT_FILTER_DST)
	if err != nil {
		return nil, err
	}
	for _, r := range routes {
		indexes := []int{r.LinkIndex}
		for _, hop := range r.MultiPath {
			indexes = append(indexes, hop.LinkIndex)
		}
		for _, index := range indexes {
			link, err := netlink.LinkByIndex(index) // an error for 0, the index of a route with several hops
			if err == nil && link.Attrs().Flags&unix.IFF_LOOPBACK == 0 && !slices.Contains(names, link.Attrs().Name) {
				names = append(names, link.Attrs().Name)
			}
		}
	}
	return names, nil
}
