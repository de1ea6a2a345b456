package nft_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// The batch refuses objects that netlink or nft cannot represent, rows that do
// not fit their set, and statements whose arguments do not fit together: the
// kernel would accept some of them as others.
func TestInvalid(t *testing.T) {
	t.Parallel()
	c := connect(t)
	const badName = "name must be a letter, _ or ., followed by letters, digits, _, ., / or -"
	const tooLong = "longer than 65535 bytes, the limit of a netlink attribute"
	long, longer := strings.Repeat("x", 256), strings.Repeat("x", 1<<16)
	addr, verdicts := nft.TypeIPv4Addr, serviceMap(nft.IPv4)
	key := nft.Types(addr)
	data := &nft.Set{Name: "data", Key: key, Data: nft.Types(addr, nft.TypeInetService)}
	clients := clientSet(nft.IPv4, "clients")
	table := &nft.Table{
		Family: nft.IPv4, Name: "t", Sets: []*nft.Set{verdicts, data}, Chains: []*nft.Chain{{Name: "one"}},
	}
	nstest.Commit(t, c, table)
	before := list(t)
	b := nft.NewBatch(table)
	chain := func(name string) func() { return func() { b.AddChain(&nft.Chain{Name: name}) } }
	set := func(name string, key nft.Fields) func() {
		return func() { b.AddSet(&nft.Set{Name: name, Key: key}) }
	}
	row := func(r nft.Row) func() { return func() { b.AddRow(r) } }
	rule := func(statements ...nft.Statement) func() {
		return func() { b.AddRules(&nft.Chain{Name: "one", Rules: []nft.Rule{nft.NewRule(statements...)}}) }
	}
	many := make([]nft.Statement, 2000)
	for i := range many {
		many[i] = nft.MarkHas(1)
	}
	v4, v6 := nft.Tuple{}.Addr(vip(nft.IPv4, 1)), nft.Tuple{}.Addr(vip(nft.IPv6, 1))
	p4, p6 := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")
	saddr := nft.Saddr(nft.IPv4)
	const hex6 = "0xfd000096000000000000000000000001"
	for _, tt := range []struct {
		change         func()
		object, reason string // the object of a rule is left out
	}{
		{chain("a b"), "add chain a b", badName},
		{set("1", key), "add set 1", badName},
		{chain(long), "add chain " + long, "name is longer than 255 bytes"},
		{func() { b.DeleteChain(longer) }, "delete chain " + longer, tooLong},
		{func() {
			b.AddRow(nft.Row{Set: &nft.Set{Name: longer, Key: key}, Key: v4})
			b.AddChain(&nft.Chain{Name: "one"})
		}, "add element " + longer, tooLong},
		{rule(many...), "add rule one " + nft.NewRule(many...).Text(nft.IPv4), tooLong},
		{set("s", nft.Fields{}), "add set s", "key has no fields"},

		{row(nft.Row{Set: verdicts}), "add element services 0x",
			"key of 0 bytes does not match " + verdicts.Key.String()},
		{row(nft.Row{Set: verdicts, Key: v4.Proto(tcp)}), "add element services 0x0a60000106000000",
			"key of 8 bytes does not match " + verdicts.Key.String()},
		{row(nft.Row{Set: data, Key: v6, Data: v4.Port(80)}), "add element data " + hex6,
			"key of 16 bytes does not match ipv4_addr"},
		{row(nft.Row{Set: data, Key: v4}), "add element data 10.96.0.1",
			"data of 0 bytes does not match " + data.Data.String()},
		{row(service(verdicts, nft.IPv4, 1, long)), "add element services 10.96.0.1 . tcp . 80",
			"chain name of the verdict is longer than 255 bytes"},
		{func() { b.DeleteRow(nft.Row{Set: data, Key: v6}) }, "delete element data " + hex6,
			"key of 16 bytes does not match ipv4_addr"},

		{rule(nft.Within(saddr, p6)), "", "prefix 2001:db8::/32 does not match the type of ip saddr"},
		{rule(nft.NotWithin(nft.Daddr(nft.IPv6), p4)), "", "prefix 10.0.0.0/8 does not match the type of ip6 daddr"},
		{rule(nft.Within(nft.ThDport(), p4)), "", "prefix 10.0.0.0/8 does not match the type of th dport"},
		{rule(nft.Within(nft.Random(2, 0), p4)), "",
			"prefix 10.0.0.0/8 does not match the type of numgen random mod 2"},
		{rule(nft.Within(saddr, netip.Prefix{})), "", "prefix invalid Prefix does not match the type of ip saddr"},
		{rule(nft.InInterface("")), "", `interface name "" is empty`},
		{rule(nft.InInterface("*")), "", `interface name "*" is empty`},
		{rule(nft.NotInInterface("sixteen-letters-")), "", `interface name "sixteen-letters-" is longer than 15 bytes`},
		{rule(nft.InInterface("sixteen-letters-*")), "", `interface name "sixteen-letters-*" is longer than 15 bytes`},
		{rule(nft.InInterface(`a"b`)), "", `interface name "a\"b" contains a quotation mark or NUL`},
		{rule(nft.DNAT(netip.AddrPort{})), "", "address invalid AddrPort is neither IPv4 nor IPv6"},
		{rule(nft.DNAT(netip.MustParseAddrPort("[::ffff:10.0.0.1]:80"))), "",
			"address [::ffff:10.0.0.1]:80 is neither IPv4 nor IPv6"},
		{rule(nft.Update(clients, -time.Second, saddr)), "", "timeout -1s is negative"},
	} {
		b.Tag(1)
		b.AddRow(service(verdicts, nft.IPv4, 1, "one"))
		b.Tag(2)
		tt.change()
		object := tt.object
		if object == "" {
			object = "add rule one …"
		}
		if p := checkProblem(t, c, b, object+": invalid argument: "+tt.reason); p.Tag != 2 {
			t.Errorf("%.100s: got tag %d, want 2", object, p.Tag)
		}
		b.Reset()
		commit(t, c, b)
	}
	b = nft.NewBatch(&nft.Table{Family: nft.IPv4, Name: "a table"})
	b.AddTable("")
	checkProblem(t, c, b, "add table a table: invalid argument: "+badName)
	checkUnchanged(t, before)
}
