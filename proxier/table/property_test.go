package table

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// changer makes random changes to a sink.
type changer struct {
	*rand.Rand
	family nft.Family
}

func (c changer) addr(net byte, n int) netip.Addr {
	if c.family == nft.IPv4 {
		return netip.AddrFrom4([4]byte{10, net, byte(n >> 8), byte(n)})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 3: net, 14: byte(n >> 8), 15: byte(n)})
}

// randomServices is the number of different Services.
const randomServices = 8

var allProtocols = []cluster.Protocol{cluster.TCP, cluster.UDP, cluster.SCTP}

func serviceName(i int) cluster.ServiceName {
	return cluster.ServiceName{Namespace: "ns", Name: fmt.Sprintf("svc-%d", i)}
}

func (c changer) service(i int) *cluster.Service {
	svc := &cluster.Service{
		Name:           serviceName(i),
		Families:       []nft.Family{c.family},
		Created:        time.Unix(int64(c.IntN(3)), 0),
		ClusterIPs:     []netip.Addr{c.addr(96, i)},
		InternalPolicy: cluster.Policy(c.IntN(2)), ExternalPolicy: cluster.Policy(c.IntN(2)),
	}
	for range c.IntN(3) {
		svc.ExternalIPs = append(svc.ExternalIPs, c.addr(192, c.IntN(4))) // few, so that there are conflicts
	}
	if c.IntN(2) == 0 {
		svc.LoadBalancerIPs = []netip.Addr{c.addr(198, c.IntN(4))}
		for range c.IntN(4) {
			ip := c.addr(byte(c.IntN(3)), c.IntN(500))
			svc.SourceRanges = append(svc.SourceRanges, netip.PrefixFrom(ip, c.IntN(ip.BitLen()+1)))
		}
	}
	if c.IntN(3) == 0 {
		svc.AffinityTimeout = time.Duration(1+c.IntN(3)) * time.Minute
	}
	for p := range 1 + c.IntN(3) {
		port := cluster.ServicePort{
			Name: fmt.Sprintf("p%d", p), Protocol: allProtocols[c.IntN(len(allProtocols))], Port: uint16(80 + p),
		}
		if c.IntN(2) == 0 {
			port.NodePort = uint16(30000 + c.IntN(6))
		}
		svc.Ports = append(svc.Ports, port)
	}
	return svc
}

func (c changer) endpoint() *cluster.Endpoint {
	e := &cluster.Endpoint{
		EndpointKey: cluster.EndpointKey{Source: fmt.Sprintf("slice-%d", c.IntN(2)), Addr: c.addr(244, c.IntN(9))},
		Node:        []string{"node1", "node2", ""}[c.IntN(3)],
		Ready:       c.IntN(4) > 0, Terminating: c.IntN(4) == 0,
	}
	e.Serving = e.Ready || c.IntN(2) == 0
	if c.IntN(4) == 0 {
		e.Hints = &cluster.Hints{
			Zones: []string{"a", "b"}[:1+c.IntN(2)],
			Nodes: []string{"node1", "node2"}[:c.IntN(2)],
		}
	}
	for p := range 3 {
		for _, proto := range allProtocols {
			port := cluster.EndpointPort{Name: fmt.Sprintf("p%d", p), Protocol: proto, Port: uint16(8000 + p*c.IntN(2))}
			e.Ports = append(e.Ports, port)
		}
	}
	return e
}

// endpoints returns up to three endpoints of a source, sorted by address.
func (c changer) endpoints(source string) []*cluster.Endpoint {
	all := map[netip.Addr]*cluster.Endpoint{}
	for range c.IntN(4) {
		e := c.endpoint()
		e.Source = source
		all[e.Addr] = e
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *cluster.Endpoint) int { return a.Addr.Compare(b.Addr) })
}

// change calls a random method of s.
func (c changer) change(s cluster.Sink) {
	name := serviceName(c.IntN(randomServices))
	switch c.IntN(12) {
	case 0:
		s.DeleteService(name)
	case 1, 2, 3:
		s.SetService(c.service(c.IntN(randomServices)))
	case 4, 5:
		s.DeleteEndpoint(name, c.endpoint().EndpointKey)
	case 6:
		n := tabletest.Node()
		n.Zone = []string{"", "a", "b"}[c.IntN(3)]
		n.ServiceCIDRs = n.ServiceCIDRs[:c.IntN(3)]
		n.NodePortIPs = []netip.Addr{c.addr(30, 1), c.addr(30, 2), c.addr(30, 3)}[:c.IntN(4)]
		s.SetNode(n)
	case 7, 8:
		s.SetEndpoints(name, "slice-0", c.endpoints("slice-0"))
	default:
		s.SetEndpoint(name, c.endpoint())
	}
}

// randomConfig returns a configuration with NodePorts on all addresses, or on
// those of cluster.Node.NodePortIPs.
func randomConfig(allNodePortAddresses bool) Config {
	c := sampleConfig()
	if !allNodePortAddresses {
		c.Rules.NodePortAddresses = ruleset.NodePortAddresses{CIDRs: tabletest.Prefixes("10.0.0.0/8", "fd00::/8")}
	}
	return c
}

// rounds returns the number of rounds of a random test: n, or fewer with
// -short, which tests on emulated machines use.
func rounds(n int) int {
	if testing.Short() {
		return (n + 4) / 5
	}
	return n
}

// After random changes, a sync makes the table in the kernel equal to the
// desired table, without a rewrite.
func TestRandomChanges(t *testing.T) {
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("%s/%d", f, seed), func(t *testing.T) {
				tabletest.NewNamespace(t)
				c := changer{rand.New(rand.NewPCG(seed, 1)), f}
				table := newTable(t, randomConfig(seed%2 == 0), f)
				for range rounds(40) {
					for range 1 + c.IntN(12) {
						c.change(table)
					}
					tabletest.Sync(t, table)
					checkTable(t, table)
				}
				if got := table.stats.Rewrites; got > 1 {
					t.Errorf("got %d rewrites, want 1 for the first sync", got)
				}
			})
		}
	}
}

// randomFaults returns a function for Kernel.OnCommit. At random, it loses
// the request or the answer, or another program commits before.
func randomFaults(t testing.TB, random *rand.Rand) func(*nft.Batch, func() error) error {
	return func(_ *nft.Batch, commit func() error) error {
		switch random.IntN(8) {
		case 0: // the answer is lost
			if err := commit(); err != nil {
				return err
			}
			return nft.ErrUnknownOutcome
		case 1: // the request is lost
			return nft.ErrUnknownOutcome
		case 2:
			tabletest.NFT(t, "", "flush", "ruleset")
		case 3:
			tabletest.LoadNFT(t, "add table ip other; add chain ip other c; delete table ip other")
		case 4:
			exec.Command("nft", "flush", "chain", "ip", ruleset.TableName, "services").Run() // it may not exist
		}
		return commit()
	}
}

// After random changes and faults, the first sync without a fault makes the
// table in the kernel equal to the desired table.
func TestRandomFaults(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			tabletest.NewNamespace(t)
			c := changer{rand.New(rand.NewPCG(seed, 2)), nft.IPv4}
			table := newTable(t, randomConfig(true), nft.IPv4)
			k := injectFaults(table)
			for range rounds(10) {
				k.OnCommit = randomFaults(t, c.Rand)
				for range 8 {
					c.change(table)
					var d *damage
					err := table.Sync()
					if err != nil && !errors.Is(err, nft.ErrUnknownOutcome) && !errors.As(err, &d) {
						t.Fatal(err)
					}
					table.observed.repairs.pause = 0
				}
				k.OnCommit = nil
				tabletest.Sync(t, table)
				mustCheck(t, table)
				checkTable(t, table)
			}
		})
	}
}
