package nft_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

const (
	tcp  = uint8(unix.IPPROTO_TCP)
	udp  = uint8(unix.IPPROTO_UDP)
	sctp = uint8(unix.IPPROTO_SCTP)
)

// statementSets are the sets that the rules of TestStatements look up.
type statementSets struct {
	addrs, services, sources, clients *nft.Set
	verdicts, endpoints               *nft.Set
}

func newStatementSets(f nft.Family) statementSets {
	addr := nft.TypeAddr(f)
	return statementSets{
		addrs:     &nft.Set{Name: "addrs", Key: nft.Types(addr)},
		services:  &nft.Set{Name: "services", Key: nft.Types(addr, nft.TypeInetProto, nft.TypeInetService)},
		sources:   &nft.Set{Name: "sources", Key: nft.Types(addr, nft.TypeInetService, addr), Interval: true},
		clients:   &nft.Set{Name: "clients", Key: nft.Typeof(nft.Saddr(f), nft.Constant(0)), Dynamic: true, Timeouts: true, Size: 100},
		verdicts:  &nft.Set{Name: "verdicts", Key: nft.Types(addr, nft.TypeInetProto, nft.TypeInetService), Verdicts: true},
		endpoints: &nft.Set{Name: "endpoints", Key: nft.Typeof(nft.Daddr(f), nft.L4Proto(), nft.ThDport(), nft.Random(1, 0)), Data: nft.Typeof(nft.Daddr(f), nft.ThDport())},
	}
}

func (s statementSets) all() []*nft.Set {
	return []*nft.Set{s.addrs, s.services, s.sources, s.clients, s.verdicts, s.endpoints}
}

// statementRules is a rule for every function that makes a statement or an expression, in all its variants.
func statementRules(f nft.Family, s statementSets) []nft.Rule {
	rule := nft.NewRule
	vip := []nft.Expr{nft.Daddr(f), nft.L4Proto(), nft.ThDport()}
	rules := []nft.Rule{
		rule(nft.In(s.addrs, nft.Daddr(f))),
		rule(nft.In(s.addrs, nft.Saddr(f))),
		rule(nft.NotIn(s.addrs, nft.Saddr(f)), nft.Drop()),
		rule(nft.In(s.services, vip...), nft.Do(nft.VerdictAccept)),
		rule(nft.NotIn(s.services, vip...), nft.Do(nft.VerdictReturn)),
		rule(nft.NotIn(s.sources, nft.Daddr(f), nft.Dport(tcp), nft.Saddr(f)), nft.Drop()),
		rule(nft.In(s.sources, nft.Daddr(f), nft.Dport(udp), nft.Saddr(f)), nft.Drop()),
		rule(nft.In(s.sources, nft.Saddr(f), nft.Dport(sctp), nft.Daddr(f)), nft.Drop()),
		rule(nft.VMap(s.verdicts, vip...)),
		rule(nft.In(s.clients, nft.Saddr(f), nft.Constant(4096)), nft.Goto("next")),
		rule(nft.In(s.clients, nft.Saddr(f), nft.Random(16, 0)), nft.Jump("next")),
		rule(nft.Update(s.clients, 3*time.Hour, nft.Saddr(f), nft.Constant(7))),
		rule(nft.Update(s.clients, 24*time.Hour+2*time.Minute+time.Second, nft.Saddr(f), nft.Constant(7))),
		rule(nft.Update(s.clients, 0, nft.Saddr(f), nft.Constant(7))),
		rule(nft.Update(s.clients, time.Second+999*time.Microsecond, nft.Saddr(f), nft.Constant(7))),
		rule(nft.DNATMap(f, s.endpoints, append(vip, nft.Random(3, 0))...)),
		rule(nft.DNATMap(f, s.endpoints, append(vip, nft.Random(2, 65536))...)),
		rule(nft.SaddrLocal()),
		rule(nft.DaddrLocal(), nft.Drop()),
		rule(nft.CtStateNew(), nft.Jump("next")),
		rule(nft.CtStateNotNew(), nft.Jump("next")),
		rule(nft.CtStatusDNAT(), nft.Drop()),
		rule(nft.MatchL4Proto(tcp)),
		rule(nft.MatchL4Proto(udp)),
		rule(nft.MatchL4Proto(sctp)),
		rule(nft.MarkHas(0x4000)),
		rule(nft.MarkHas(1 << 31)),
		rule(nft.SetMarkBits(0x4000)),
		rule(nft.SetMarkBits(1)),
		rule(nft.FlipMarkBits(0x4000)),
		rule(nft.FlipMarkBits(1 << 31)),
		rule(nft.MasqueradeFullyRandom()),
		rule(nft.Reject(f)),
		rule(nft.RejectTCPReset()),
		rule(nft.InInterface("cbr0")),
		rule(nft.NotInInterface("cbr0")),
		rule(nft.InInterface("fifteen-letters")),
		rule(nft.InInterface("veth*")),
		rule(nft.NotInInterface("veth*")),
		rule(nft.InInterface("fifteen-letters*")),
		rule(nft.InInterface("v*")),
		rule(nft.Drop()),
		rule(nft.Do(nft.VerdictAccept)),
		rule(nft.Do(nft.VerdictReturn)),
		rule(nft.Goto("next")).WithComment("with a comment"),
		rule(nft.Jump("next")).WithComment(strings.Repeat("ü", 100)),
		rule(nft.MatchL4Proto(tcp), nft.Drop()).WithComment(`with "quotes"`),
		rule(nft.Raw("meta mark set 0x00000007",
			&expr.Immediate{Register: 1, Data: []byte{7, 0, 0, 0}}, &expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: true})),
	}
	for _, p := range prefixes(f) {
		rules = append(rules,
			rule(nft.Within(nft.Saddr(f), p)), rule(nft.NotWithin(nft.Saddr(f), p)),
			rule(nft.Within(nft.Daddr(f), p)), rule(nft.NotWithin(nft.Daddr(f), p)))
	}
	to := "10.244.1.8:8080"
	if f == nft.IPv6 {
		to = "[fd00:244::8]:8080"
	}
	return append(rules, rule(nft.MatchL4Proto(udp), nft.DNAT(netip.MustParseAddrPort(to))))
}

// prefixes are of lengths that end at the boundary of a byte and elsewhere.
func prefixes(f nft.Family) []netip.Prefix {
	addr, lengths := netip.MustParseAddr("203.0.113.171"), []int{0, 1, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 32}
	if f == nft.IPv6 {
		addr, lengths = netip.MustParseAddr("2001:db8:cafe:f00d:9876:5432:fedc:ba98"), []int{0, 1, 8, 31, 32, 33, 48, 64, 65, 112, 120, 127, 128}
	}
	var prefixes []netip.Prefix
	for _, n := range lengths {
		prefixes = append(prefixes, netip.PrefixFrom(addr, n))
	}
	return prefixes
}

// Every statement lists as it reads, and what it reads loads as what it is.
func TestStatements(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family) {
		sets := newStatementSets(f)
		table := &nft.Table{Family: f, Name: "t", Sets: sets.all(), Chains: []*nft.Chain{
			{Name: "test", Rules: statementRules(f, sets)}, {Name: "next"},
		}}
		commitTable(t, open(t), table)
		listing := list(t)
		got := block(t, listing, "chain test")
		if len(got) != len(table.Chains[0].Rules) {
			t.Fatalf("%d rules are listed, want %d:\n%s", len(got), len(table.Chains[0].Rules), listing)
		}
		for i, r := range table.Chains[0].Rules {
			if want := simplified(r); got[i] != want {
				t.Errorf("rule %d\nlists as %s\n   want %s", i, got[i], want)
			}
		}
		load(t, print(t, table))
		for i, loaded := range block(t, list(t), "chain test") {
			if loaded != got[i] {
				t.Errorf("rule %d\n  lists as %s\nloads as %s", i, got[i], loaded)
			}
		}
	})
}

// simplified returns a rule as nft prints it, which leaves out what follows from the rest.
func simplified(r nft.Rule) string {
	return asListed(strings.NewReplacer(
		"meta l4proto tcp reject with tcp reset", "reject with tcp reset",
		"meta mark & 0x80000000 != 0x00000000", "meta mark != 0x00000000/1",
	).Replace(r.String()))
}

// Statements of values that do not fit together never get to the kernel, which would not see it.
func TestImpossibleStatements(t *testing.T) {
	newNamespace(t)
	c := open(t)
	v4, v6 := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32")
	clients := newStatementSets(nft.IPv4).clients
	tests := []struct {
		name      string
		statement nft.Statement
		want      string
	}{
		{"IPv6 prefix of an IPv4 address", nft.Within(nft.Saddr(nft.IPv4), v6), "ip saddr 2001:db8::/32: invalid argument: the prefix is no prefix of such an address"},
		{"IPv4 prefix of an IPv6 address", nft.NotWithin(nft.Daddr(nft.IPv6), v4), "ip6 daddr != 10.0.0.0/8: invalid argument: the prefix is no prefix of such an address"},
		{"prefix of a port", nft.Within(nft.ThDport(), v4), "th dport 10.0.0.0/8: invalid argument: the prefix is no prefix of such an address"},
		{"prefix of a number", nft.Within(nft.Random(2, 0), v4), "numgen random mod 2 10.0.0.0/8: invalid argument: the prefix is no prefix of such an address"},
		{"no prefix", nft.Within(nft.Saddr(nft.IPv4), netip.Prefix{}), "ip saddr invalid Prefix: invalid argument: the prefix is no prefix of such an address"},
		{"no interface", nft.InInterface(""), `iifname "": invalid argument: the name of the interface is empty`},
		{"any interface", nft.InInterface("*"), `iifname "*": invalid argument: the name of the interface is empty`},
		{"long interface", nft.NotInInterface("sixteen-letters-"), `iifname != "sixteen-letters-": invalid argument: the name of the interface is longer than 15 bytes`},
		{"long beginning of interfaces", nft.InInterface("sixteen-letters-*"), `iifname "sixteen-letters-*": invalid argument: the name of the interface is longer than 15 bytes`},
		{"quoted interface", nft.InInterface(`a"b`), `iifname "a"b": invalid argument: nft cannot read the name of the interface`},
		{"no address", nft.DNAT(netip.AddrPort{}), "dnat to invalid AddrPort: invalid argument: the address is of neither family"},
		{"IPv4 in IPv6", nft.DNAT(netip.MustParseAddrPort("[::ffff:10.0.0.1]:80")), "dnat to [::ffff:10.0.0.1]:80: invalid argument: the address is of neither family"},
		{"negative timeout", nft.Update(clients, -time.Second, nft.Saddr(nft.IPv4)), "update @clients { ip saddr timeout 0s }: invalid argument: the timeout is negative"},
	}
	for _, tt := range tests {
		table := &nft.Table{Family: nft.IPv4, Name: "t", Chains: []*nft.Chain{{Name: "c", Rules: []nft.Rule{nft.NewRule(tt.statement, nft.Drop())}}}}
		b := nft.NewBatch(table)
		b.Tag(3)
		b.AddProgram()
		problems := refused(t, c.Commit(b))
		if want := "add rule c " + strings.Replace(tt.want, ": invalid", " drop: invalid", 1); len(problems) != 1 || problems[0].String() != want {
			t.Errorf("%s:\n got %v\nwant %s", tt.name, problems, want)
		} else if problems[0].Tag != 3 {
			t.Errorf("%s: tag %d", tt.name, problems[0].Tag)
		}
	}
	if got := list(t); got != "" {
		t.Errorf("something was written:\n%s", got)
	}
}
