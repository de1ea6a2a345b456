package table

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// inKernel is the table in the kernel, which is read once.
type inKernel struct {
	walk.Kernel
	table *Table
	rows  map[string]map[nft.Tuple]nft.Row // by set
}

// Row implements walk.Table. The sets that packets fill are empty.
func (k *inKernel) Row(set *nft.Set, key nft.Tuple) (nft.Row, error) {
	if set.Dynamic {
		return nft.Row{}, nil
	}
	if k.rows[set.Name] == nil {
		rows, err := k.Conn.Rows(k.Table, set)
		if err != nil {
			return nft.Row{}, err
		}
		k.rows[set.Name] = make(map[nft.Tuple]nft.Row)
		for _, r := range rows {
			k.rows[set.Name][r.Key] = r
		}
	}
	return k.rows[set.Name][key], nil
}

// Set implements walk.Table. Keys of rows are comparable only with the sets
// that wrote them.
func (k *inKernel) Set(name string) (*nft.Set, error) {
	all := slices.Concat(k.table.keeper.Program().Sets, k.table.rules.AffinitySets())
	if i := slices.IndexFunc(all, func(s *nft.Set) bool { return s.Name == name }); i >= 0 {
		return all[i], nil
	}
	return k.Kernel.Set(name)
}

// host is a node with the addresses of the sample node.
type host struct{}

func (host) RouteType(addr netip.Addr) (uint32, error) {
	if slices.Contains(tabletest.Node().IPs, addr) {
		return unix.RTN_LOCAL, nil
	}
	return unix.RTN_UNICAST, nil
}

func (host) Interface(netip.Addr) (string, error) { return "eth0", nil }

func (host) InterfaceIndex(string) (uint32, error) { return 2, nil }

// checkPackets walks packets from a random client outside the cluster and from
// a pod, to some of the frontends that service ports ever had, through the
// table in the kernel.
func (h *history) checkPackets() {
	h.t.Helper()
	if h.table.keeper.Program() == nil {
		return
	}
	k := &inKernel{walk.Kernel{Conn: h.kernel().Conn, Table: h.table.keeper.Program()}, h.table,
		make(map[string]map[nft.Tuple]nft.Row)}
	content := walk.Cache(k)
	clients := []netip.Addr{h.Outside(), h.Pod()}
	for f := range h.had {
		for _, client := range clients {
			h.checkPacket(content, f, client)
		}
	}
}

// checkPacket checks to which endpoints the packet of a client leads.
func (h *history) checkPacket(content walk.Table, f ruleset.Frontend, client netip.Addr) {
	h.t.Helper()
	to := f.Addr
	if f.IsNodePort() {
		i := slices.IndexFunc(tabletest.Node().IPs, h.Family.Of)
		to = tabletest.Node().IPs[i]
	}
	p := walk.Packet{
		Source: netip.AddrPortFrom(client, 1234), Destination: netip.AddrPortFrom(to, f.Port), Protocol: uint8(f.Proto),
		In: walk.Interface{Name: "eth0"},
	}
	ended, err := walk.New(content, host{}).Run(walk.NewPath(p), ruleset.BaseChainName(nft.Prerouting))
	if err != nil {
		h.t.Fatal(err)
	}
	for _, p := range ended {
		if p.End.To.IsValid() {
			if why := h.forbids(f, client, p.End.To); why != "" {
				h.t.Fatalf("a packet from %s to %s reaches %s: %s", client, f, p.End.To, why)
			}
		}
	}
}

// forbids returns why a client must not reach an endpoint through a frontend,
// "" if it may.
func (h *history) forbids(f ruleset.Frontend, client netip.Addr, to netip.AddrPort) string {
	name, port, ok := h.table.Owner(f)
	if !ok && !f.IsNodePort() { // a NodePort takes it if it is an address of this node
		f = nodePort(f)
		name, port, ok = h.table.Owner(f)
	}
	if !ok {
		return "no Service has the frontend"
	}
	view, _ := h.table.Service(name)
	i := slices.IndexFunc(port.Frontends, func(v FrontendView) bool { return v.Address == f.Addr && v.Port == f.Port })
	frontend := &port.Frontends[i]
	if frontend.Kind == ruleset.LoadBalancerIP && view.Restricted && !view.Unrestricted(h.Family) &&
		!slices.ContainsFunc(view.SourceRanges, func(p netip.Prefix) bool { return p.Contains(client) }) {
		return "the client is not in the source ranges"
	}
	local := frontend.Policy == cluster.PolicyLocal && (frontend.Kind == ruleset.ClusterIP ||
		!slices.ContainsFunc(tabletest.Rules().DetectLocal.ClusterCIDRs,
			func(p netip.Prefix) bool { return p.Contains(client) }))
	for _, e := range port.Endpoints {
		used := func(why ruleset.Unused) bool { return why == "" || why == ruleset.UnusedWeight }
		if e.Addr == to.Addr() && e.Port == to.Port() && (used(e.Local) || !local && used(e.Cluster)) {
			return ""
		}
	}
	return "the Service does not use the endpoint"
}
