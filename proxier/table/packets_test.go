package table_test

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/test/oracle"
	"github.com/nftproxy/nftproxy/test/random"
)

// host is node1 of package random.
type host struct{}

func (host) RouteType(addr netip.Addr) (uint32, error) {
	if slices.Contains(slices.Concat(random.NodeAddrs(), random.SecondAddrs()), addr) {
		return unix.RTN_LOCAL, nil
	}
	return unix.RTN_UNICAST, nil
}

func (host) Interface(netip.Addr) (string, error) { return "eth0", nil }

func (host) InterfaceIndex(string) (uint32, error) { return 2, nil }

// checkPackets walks packets from a random client outside the cluster and from
// a pod, to the frontends that service ports ever had, through the table in the
// kernel. It may lead to fewer endpoints than the oracle allows, but to no
// other ones. Weights do not count: a service port that the kernel refuses
// keeps the old ones.
func (h *history) checkPackets() {
	h.t.Helper()
	rules := &h.config.Rules
	judge := oracle.Cluster{Node: h.State().Node, Addrs: slices.Concat(random.NodeAddrs(), random.SecondAddrs())}
	judge.DetectLocalMode = string(rules.DetectLocal.Mode)
	judge.ClusterCIDRs, judge.NodePortCIDRs = rules.DetectLocal.ClusterCIDRs, rules.NodePortAddresses.CIDRs
	judge.Services, judge.Endpoints = h.State().Served()
	for _, endpoints := range judge.Endpoints {
		for _, e := range endpoints {
			e.Weight = cluster.WeightOf(1)
		}
	}
	kernel := walk.Cache(&walk.Kernel{Conn: h.conn, Table: &nft.Table{Family: h.Family, Name: ruleset.TableName}})
	clients := []netip.Addr{h.Outside(), h.Pod()}
	for f := range h.had {
		to := netip.AddrPortFrom(f.Addr, f.Port)
		if f.IsNodePort() {
			to = netip.AddrPortFrom(random.NodeAddrs()[slices.IndexFunc(random.NodeAddrs(), h.Family.Of)], f.Port)
		}
		for _, client := range clients {
			allowed := judge.Outcomes(oracle.Connection{
				Source: client, Interface: "eth0", Destination: to, Protocol: f.Proto,
			})
			ended, err := walk.New(kernel, host{}).Run(walk.NewPath(walk.Packet{
				Source: netip.AddrPortFrom(client, 1234), Destination: to, Protocol: uint8(f.Proto),
				In: walk.Interface{Name: "eth0"},
			}), ruleset.BaseChainName(nft.Prerouting))
			if err != nil {
				h.t.Fatal(err)
			}
			for _, p := range ended {
				isEnd := func(o oracle.Outcome) bool { return o.Endpoint == p.End.To }
				if p.End.To.IsValid() && !slices.ContainsFunc(allowed, isEnd) {
					h.t.Fatalf("a packet from %s to %s reaches %s, want %+v", client, f, p.End.To, allowed)
				}
			}
		}
	}
}
