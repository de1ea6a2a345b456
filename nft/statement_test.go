package nft_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// statementRules returns rules with all variants of each function that
// returns a statement or an expression, and the sets that they look up.
func statementRules(f nft.Family) ([]nft.Rule, []*nft.Set) {
	rule := nft.NewRule
	addrs, sources, clients := addrSet(f, "addrs"), sourceSet(f, "sources"), clientSet(f, "clients")
	endpoints := endpointMap(f)
	counted := &nft.Set{
		Name: "counted", Dynamic: true, Counts: true,
		Key: nft.Types(nft.TypeAddr(f), nft.TypeInetService, nft.TypeAddr(f), nft.TypeInetService),
	}
	services := &nft.Set{Name: "services", Key: serviceType(f)}
	verdicts := &nft.Set{Name: "verdicts", Key: serviceType(f), Verdicts: true}
	vip, client := serviceKey(f), []nft.Expr{nft.Saddr(f), nft.Priority()}
	rules := []nft.Rule{
		rule(nft.In(addrs, nft.Daddr(f))),
		rule(nft.In(addrs, nft.Saddr(f))),
		rule(nft.NotIn(addrs, nft.Saddr(f)), nft.Drop()),
		rule(nft.In(services, vip...), nft.Drop()),
		rule(nft.NotIn(services, vip...), nft.Drop()),
		rule(nft.NotIn(sources, nft.Daddr(f), nft.ThDport(), nft.Saddr(f)), nft.Drop()),
		rule(nft.In(sources, nft.Daddr(f), nft.ThDport(), nft.Saddr(f)), nft.Drop()),
		rule(nft.In(sources, nft.Saddr(f), nft.ThDport(), nft.Daddr(f)), nft.Drop()),
		rule(nft.VMap(verdicts, vip...)),
		rule(nft.SetPriorityTo(4096), nft.In(clients, client...), nft.Goto("next")),
		rule(nft.SetPriority(nft.Random(16, 0)), nft.In(clients, client...), nft.Jump("next")),
		rule(nft.Update(clients, 3*time.Hour, client...)),
		rule(nft.Update(clients, 24*time.Hour+2*time.Minute+time.Second, client...)),
		rule(nft.Update(clients, 0, client...)),
		rule(nft.Update(clients, time.Second+999*time.Microsecond, client...)),
		rule(nft.SetPriority(nft.Random(3, 0)), nft.DNATMap(f, endpoints, append(vip, nft.Priority())...)),
		rule(nft.SetPriority(nft.Random(2, 65536)), nft.DNATMap(f, endpoints, append(vip, nft.Priority())...)),
		rule(nft.SaddrLocal()),
		rule(nft.DaddrLocal(), nft.Drop()),
		rule(nft.DaddrNotLocal(), nft.Drop()),
		rule(nft.CtStatusDNAT(), nft.Drop()),
		rule(nft.CtStateNew(), nft.Drop()),
		rule(nft.CtDirectionReply(), nft.Drop()),
		rule(nft.TCPRefuses(), nft.Update(counted, time.Minute,
			nft.Saddr(f), nft.ThSport(), nft.OriginalDaddr(f), nft.OriginalDport())),
		rule(nft.MatchL4Proto(tcp)),
		rule(nft.MatchL4Proto(udp)),
		rule(nft.MatchL4Proto(sctp)),
		rule(nft.MarkHas(0x4000)),
		rule(nft.MarkHas(1 << 31)),
		rule(nft.SetMarkBits(0x4000)),
		rule(nft.SetMarkBits(1)),
		rule(nft.FlipMarkBits(0x4000)),
		rule(nft.FlipMarkBits(1 << 31)),
		rule(nft.SetPriorityBits(1, 0xff000000), nft.Goto("next")),
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
		rule(nft.SetTrace()),
		rule(nft.UnsetTrace()),
		rule(nft.LimitRate(10, 5), nft.SetTrace()),
		rule(nft.LimitRate(1, 20), nft.SetTrace()),
		rule(nft.TCPSyn(), nft.Jump("next")),
		rule(nft.TCPHasSyn(), nft.Drop()),
		rule(nft.SCTPInit(), nft.Jump("next")),
		rule(nft.MatchL4Proto(udp), nft.CtStateFirst(), nft.Jump("next")),
		rule(nft.CtStateKnown()),
		rule(nft.Goto("next")).WithComment("with a comment"),
		rule(nft.Jump("next")).WithComment(strings.Repeat("ü", 100)),
		rule(nft.MatchL4Proto(tcp), nft.Drop()).WithComment(`with "quotes"`),
	}
	for _, p := range prefixes(f) {
		rules = append(rules,
			rule(nft.Within(nft.Saddr(f), p)), rule(nft.NotWithin(nft.Saddr(f), p)),
			rule(nft.Within(nft.Daddr(f), p)), rule(nft.NotWithin(nft.Daddr(f), p)))
	}
	return append(rules, rule(nft.MatchL4Proto(udp), nft.DNAT(endpointAddr(f)))),
		[]*nft.Set{addrs, services, sources, clients, counted, verdicts, endpoints}
}

// prefixes returns prefixes whose lengths are at byte boundaries and between
// them.
func prefixes(f nft.Family) []netip.Prefix {
	addr, lengths := netip.MustParseAddr("203.0.113.171"), []int{0, 1, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 32}
	if f == nft.IPv6 {
		addr = netip.MustParseAddr("2001:db8:cafe:f00d:9876:5432:fedc:ba98")
		lengths = []int{0, 1, 8, 31, 32, 33, 48, 64, 65, 112, 120, 127, 128}
	}
	var prefixes []netip.Prefix
	for _, n := range lengths {
		prefixes = append(prefixes, netip.PrefixFrom(addr, n))
	}
	return prefixes
}

// nft lists each rule as Rule.Text returns it, and loads it as the same rule.
func TestStatements(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		rules, sets := statementRules(f)
		table := &nft.Table{Family: f, Name: "t", Sets: sets, Chains: []*nft.Chain{
			{Name: "test", Rules: rules}, {Name: "next"},
		}}
		nstest.Commit(t, c, table)
		checkTexts(t, c, table)
		checkFile(t, list(t), table)
		checkTexts(t, c, table)
	})
}
