package walk_test

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
)

// memory is a table that is not in the kernel yet.
type memory struct {
	*nft.Table
	rows []nft.Row
}

func (m memory) Rules(chain string) ([]nft.Rule, error) {
	for _, c := range m.Chains {
		if c.Name == chain {
			return c.Rules, nil
		}
	}
	return nil, fmt.Errorf("no chain %s", chain)
}

func (m memory) Set(name string) (*nft.Set, error) {
	for _, s := range m.Sets {
		if s.Name == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no set %s", name)
}

func (m memory) Row(set *nft.Set, key nft.Tuple) (nft.Row, error) {
	for _, r := range m.rows {
		if r.Set == set && r.Key == key {
			return r, nil
		}
	}
	return nft.Row{}, nil
}

// nowhere is a host without interfaces and routes.
type nowhere struct{}

var errNowhere = errors.New("this host has no routes")

func (nowhere) RouteType(netip.Addr) (uint32, error)  { return unix.RTN_UNREACHABLE, nil }
func (nowhere) Interface(netip.Addr) (string, error)  { return "", errNowhere }
func (nowhere) InterfaceIndex(string) (uint32, error) { return 0, errNowhere }

// A load balancer selects one of two endpoints at random.
func Example() {
	const f = nft.IPv4
	endpoints := &nft.Set{
		Name: "endpoints",
		Key:  nft.Types(nft.TypeIPv4Addr, nft.TypeInetProto, nft.TypeInetService, nft.TypeClassID),
		Data: nft.Types(nft.TypeIPv4Addr, nft.TypeInetService),
	}
	draw := nft.SetPriority(nft.Random(2, 1))
	translate := nft.DNATMap(f, endpoints, nft.Daddr(f), nft.L4Proto(), nft.ThDport(), nft.Priority())
	web := nft.Tuple{}.Addr(netip.MustParseAddr("192.0.2.10")).Proto(unix.IPPROTO_TCP).Port(80)
	endpoint := func(index uint32, addr string) nft.Row {
		data := nft.Tuple{}.Addr(netip.MustParseAddr(addr)).Port(8080)
		return nft.Row{Set: endpoints, Key: web.Integer(index), Data: data}
	}
	table := memory{
		Table: &nft.Table{
			Family: f, Name: "example", Sets: []*nft.Set{endpoints},
			Chains: []*nft.Chain{{Name: "prerouting", Rules: []nft.Rule{nft.NewRule(draw, translate)}}},
		},
		rows: []nft.Row{endpoint(1, "10.0.0.5"), endpoint(2, "10.0.0.6")},
	}

	w := walk.New(table, nowhere{})
	paths, err := w.Run(walk.NewPath(walk.Packet{
		Source:      netip.MustParseAddrPort("198.51.100.1:40000"),
		Destination: netip.MustParseAddrPort("192.0.2.10:80"),
		Protocol:    unix.IPPROTO_TCP,
	}), "prerouting")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range paths {
		fmt.Println(p.Share.RatString(), p.End.To)
	}
	// Output:
	// 1/2 10.0.0.5:8080
	// 1/2 10.0.0.6:8080
}
