package nft_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// A load balancer: a map of services assigns each service to a chain. The chain
// sets the priority to a random number, by which a map selects one of the
// endpoints of the service.
func Example() {
	const f = nft.IPv4
	service := []nft.Expr{nft.Daddr(f), nft.L4Proto(), nft.ThDport()}
	services := &nft.Set{
		Name:     "services",
		Key:      nft.Types(nft.TypeIPv4Addr, nft.TypeInetProto, nft.TypeInetService),
		Verdicts: true,
		Comment:  "by virtual IP",
	}
	endpoints := &nft.Set{
		Name: "endpoints",
		Key:  nft.Types(nft.TypeIPv4Addr, nft.TypeInetProto, nft.TypeInetService, nft.TypeClassID),
		Data: nft.Types(nft.TypeIPv4Addr, nft.TypeInetService),
	}
	draw := nft.SetPriority(nft.Random(2, 1))
	translate := nft.DNATMap(f, endpoints, append(service, nft.Priority())...)
	table := &nft.Table{
		Family: f,
		Name:   "example",
		Sets:   []*nft.Set{services, endpoints},
		Chains: []*nft.Chain{
			{Name: "balance-2", Rules: []nft.Rule{nft.NewRule(draw), nft.NewRule(translate)}},
			{
				Name:  "prerouting",
				Hook:  &nft.Hook{Type: nft.ChainTypeNAT, Point: nft.Prerouting, Priority: nft.PriorityDstNAT},
				Rules: []nft.Rule{nft.NewRule(nft.VMap(services, service...))},
			},
		},
	}
	web := nft.Tuple{}.Addr(netip.MustParseAddr("192.0.2.10")).Proto(unix.IPPROTO_TCP).Port(80)
	endpoint := func(index uint32, addr string) nft.Row {
		data := nft.Tuple{}.Addr(netip.MustParseAddr(addr)).Port(8080)
		return nft.Row{Set: endpoints, Key: web.Integer(index), Data: data}
	}
	rows := []nft.Row{
		{Set: services, Key: web, Verdict: nft.VerdictGoto("balance-2"), Comment: "web"},
		endpoint(1, "10.0.0.5"),
		endpoint(2, "10.0.0.6"),
	}

	conn, err := nft.Open()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	b := nft.NewBatch(table)
	b.AddProgram()
	for _, r := range rows {
		b.AddRow(r)
	}
	if err := conn.Commit(b); err != nil {
		fmt.Println(err)
		return
	}

	// Replace the second endpoint. No packet sees the state in between.
	b.Reset()
	b.DeleteRow(rows[2])
	rows[2] = endpoint(2, "10.0.0.7")
	b.AddRow(rows[2])
	if err := conn.Commit(b); err != nil {
		fmt.Println(err)
		return
	}
	table.Fprint(os.Stdout, rows)

	// Output:
	// table ip example {
	//
	// 	map services {
	// 		type ipv4_addr . inet_proto . inet_service : verdict
	// 		comment "by virtual IP"
	// 		elements = {
	// 			192.0.2.10 . tcp . 80 comment "web" : goto balance-2
	// 		}
	// 	}
	//
	// 	map endpoints {
	// 		type ipv4_addr . inet_proto . inet_service . classid : ipv4_addr . inet_service
	// 		elements = {
	// 			192.0.2.10 . tcp . 80 . 0:1 : 10.0.0.5 . 8080,
	// 			192.0.2.10 . tcp . 80 . 0:2 : 10.0.0.7 . 8080
	// 		}
	// 	}
	//
	// 	chain balance-2 {
	// 		meta priority set numgen random mod 2 offset 1
	// 		dnat ip to ip daddr . meta l4proto . th dport . meta priority map @endpoints
	// 	}
	//
	// 	chain prerouting {
	// 		type nat hook prerouting priority -100;
	// 		ip daddr . meta l4proto . th dport vmap @services
	// 	}
	// }
}

// An error names the refused change and has its tag.
func ExampleCommitError() {
	clients := &nft.Set{Name: "clients", Key: nft.Types(nft.TypeIPv6Addr)}
	conn, err := nft.Open()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	b := nft.NewBatch(&nft.Table{Family: nft.IPv6, Name: "example", Sets: []*nft.Set{clients}})
	b.AddProgram()
	b.Tag(42)
	b.DeleteRow(nft.Row{Set: clients, Key: nft.Tuple{}.Addr(netip.MustParseAddr("2001:db8::1"))})
	err = conn.Commit(b)
	fmt.Println(err)

	var refused *nft.CommitError
	if errors.As(err, &refused) {
		p := refused.Problems[0]
		fmt.Println(p.Tag, p.Op, p.Object, errors.Is(err, unix.ENOENT))
	}

	// Output:
	// commit table ip6 example: delete element clients 2001:db8::1: no such file or directory
	// 42 delete element clients 2001:db8::1 true
}
