package nft_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

var tables = flag.Int("tables", 12, "number of tables of TestRandomTables")

// TestRandomTables makes random tables with all features of the package. The
// listing of nft must be the same whether nft loads the file of Fprint or
// Commit writes the table, and it must load again. Rows that a batch changes
// must equal rows that are added at once.
func TestRandomTables(t *testing.T) {
	n := uint64(*tables)
	if testing.Short() {
		n = (n + 1) / 2 // emulated processors are slow
	}
	for seed := range n {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			r := &random{Rand: rand.New(rand.NewPCG(seed, 0))}
			table := r.table()
			checkTable(t, connect(t), table, r.rows(table), r.rows(table))
		})
	}
}

// checkTable writes a table in all ways and compares the listings.
func checkTable(t *testing.T, c *nft.Conn, table *nft.Table, first, second []nft.Row) {
	t.Helper()
	file := print(t, table, first...)
	load(t, file)
	listing := list(t)
	want := sorted(listing)
	load(t, listing)
	if got := sorted(list(t)); got != want {
		t.Errorf("after loading the listing: got\n%s\nwant\n%s", got, want)
	}
	load(t, "")
	nstest.Commit(t, c, table, first...)
	if got := sorted(list(t)); got != want {
		t.Errorf("after commit: got\n%s\nwant\n%s\nfrom\n%s", got, want, file)
	}
	checkTexts(t, c, table)

	b := nft.NewBatch(table)
	kept := make(map[nft.Row]bool)
	for _, r := range first {
		kept[r] = slices.Contains(second, r)
		if !kept[r] {
			b.DeleteRow(r)
		}
	}
	for _, r := range second {
		if !kept[r] {
			b.AddRow(r)
		}
	}
	commit(t, c, b)
	got := sorted(list(t))
	load(t, "")
	nstest.Commit(t, c, table, second...)
	if want := sorted(list(t)); got != want {
		t.Errorf("after changing rows: got\n%s\nwant\n%s", got, want)
	}
}

// sorted returns a listing with sorted elements. nft lists some sets in the
// order in which elements were added.
func sorted(listing string) string {
	const begin, end = "elements = { ", " }\n"
	var s strings.Builder
	for {
		before, after, ok := strings.Cut(listing, begin)
		s.WriteString(before)
		if !ok {
			return s.String()
		}
		elements, rest, _ := strings.Cut(after, end)
		list := strings.Split(elements, ",")
		for i := range list {
			list[i] = strings.TrimSpace(list[i])
		}
		slices.Sort(list)
		s.WriteString(begin + strings.Join(list, ",\n") + end)
		listing = rest
	}
}

// random makes tables.
type random struct {
	*rand.Rand
	family   nft.Family
	names    int
	counters []*nft.Counter
}

func pick[T any](r *random, from ...T) T { return from[r.IntN(len(from))] }

// maybe is true once in n times.
func (r *random) maybe(n int) bool { return r.IntN(n) == 0 }

func (r *random) name(kind string) string {
	r.names++
	return pick(r, kind, kind+"-"+kind, kind+"/a.b/C_", "_"+kind, "."+kind) + fmt.Sprint(r.names)
}

func (r *random) comment() string {
	if r.maybe(2) {
		return ""
	}
	long := fmt.Sprintf("long %0121dü", r.IntN(1000)) // is cut inside the last character
	return pick(r, "short", "ns/name:port", "with 'quotes' and \"quotes\"", "grün und €", long)
}

func (r *random) addr() netip.Addr {
	var b [16]byte
	for i := range b {
		b[i] = byte(r.IntN(4)) // few, so that addresses repeat
	}
	if r.family == nft.IPv4 {
		return netip.AddrFrom4([4]byte(b[:4]))
	}
	b[0] = 0xfd
	return netip.AddrFrom16(b)
}

// keyedSet is a set with expressions for its key.
type keyedSet struct {
	*nft.Set
	key []nft.Expr
}

// table makes a table. Chains refer to later chains only, and no base chain
// of type filter reaches a chain with NAT.
func (r *random) table() *nft.Table {
	r.family = pick(r, families...)
	t := &nft.Table{Family: r.family, Name: r.name("table"), Comment: r.comment()}
	var sets []keyedSet
	for range r.IntN(6) {
		sets = append(sets, r.set())
	}
	if r.maybe(2) {
		client := []nft.Expr{nft.Saddr(r.family), nft.Priority()}
		sets = append(sets, keyedSet{clientSet(r.family, r.name("clients")), client})
	}
	for _, s := range sets {
		t.Sets = append(t.Sets, s.Set)
	}
	for range r.IntN(3) {
		r.counters = append(r.counters, &nft.Counter{Name: r.name("counter")})
	}
	t.Counters = r.counters
	plain, nat := r.chains("chain"), r.chains("nat")
	for i, c := range plain {
		c.Rules = r.rules(sets, plain[i+1:], false)
	}
	for i, c := range nat {
		c.Rules = r.rules(sets, nat[i+1:], true)
	}
	t.Chains = append(plain, nat...)
	for range r.IntN(3) {
		base := &nft.Chain{Name: r.name("base"), Hook: &nft.Hook{
			Type:     nft.ChainTypeFilter,
			Point:    pick(r, nft.Prerouting, nft.Input, nft.Forward, nft.Output),
			Priority: int32(r.IntN(600) - 300),
			Drop:     r.maybe(3),
		}}
		base.Rules = r.rules(sets, plain, false)
		t.Chains = append(t.Chains, base)
	}
	if r.maybe(2) {
		hook := pick(r,
			nft.Hook{Type: nft.ChainTypeNAT, Point: nft.Prerouting, Priority: nft.PriorityDstNAT},
			nft.Hook{Type: nft.ChainTypeNAT, Point: nft.Postrouting, Priority: nft.PrioritySrcNAT})
		t.Chains = append(t.Chains, &nft.Chain{Name: r.name("base"), Hook: &hook})
	}
	return t
}

func (r *random) chains(kind string) []*nft.Chain {
	var chains []*nft.Chain
	for range r.IntN(5) {
		chains = append(chains, &nft.Chain{Name: r.name(kind)})
	}
	return chains
}

func (r *random) set() keyedSet {
	f := r.family
	addr := nft.TypeAddr(f)
	vip := serviceKey(f)
	s := pick(r,
		keyedSet{&nft.Set{Key: nft.Types(addr)}, vip[:1]},
		keyedSet{&nft.Set{Key: serviceType(f)}, vip},
		keyedSet{&nft.Set{Key: nft.Types(nft.TypeInetProto, nft.TypeInetService)}, vip[1:]},
		keyedSet{&nft.Set{Key: endpointMap(f).Key}, append(vip, nft.Priority())},
		keyedSet{&nft.Set{Key: nft.Types(nft.TypeClassID)}, []nft.Expr{nft.Priority()}},
		keyedSet{sourceSet(f, ""), []nft.Expr{nft.Daddr(f), nft.ThDport(), nft.Saddr(f)}},
		keyedSet{&nft.Set{Key: nft.Types(addr)}, []nft.Expr{nft.Saddr(f)}},
		keyedSet{&nft.Set{Key: nft.Types(nft.TypeInetService)}, []nft.Expr{nft.ThDport()}},
	)
	s.Name, s.Comment = r.name("set"), r.comment()
	switch r.IntN(4) {
	case 0:
		s.Verdicts = true
	case 1:
		s.Data = pick(r, nft.Types(addr, nft.TypeInetService), nft.Types(addr))
	case 2:
		s.Counts = true
	}
	if r.maybe(4) {
		s.Size = 100 + r.Uint32N(1000)
	}
	return s
}

func (r *random) rules(sets []keyedSet, chains []*nft.Chain, nat bool) []nft.Rule {
	var rules []nft.Rule
	for range r.IntN(5) {
		var statements []nft.Statement
		for range r.IntN(3) {
			statements = append(statements, r.match(sets))
		}
		statements = append(statements, r.last(sets, chains, nat))
		if r.maybe(9) { // nft would list it differently after other statements
			statements = []nft.Statement{nft.RejectTCPReset()}
		}
		rules = append(rules, nft.NewRule(statements...).WithComment(r.comment()))
	}
	return rules
}

// match makes a statement that other statements can follow.
func (r *random) match(sets []keyedSet) nft.Statement {
	f := r.family
	addr := r.addr()
	prefix := netip.PrefixFrom(addr, r.IntN(addr.BitLen()+1))
	bits := uint32(1) << r.IntN(31)
	iface := pick(r, "eth0", "veth*", "fifteen-letters", "a")
	mod, offset := 1+r.Uint32N(9), r.Uint32N(2)*65536
	client := []nft.Expr{nft.Saddr(f), nft.ThSport()}[:1+r.IntN(2)]
	statements := []nft.Statement{
		nft.Within(pick(r, nft.Saddr(f), nft.Daddr(f)), prefix),
		nft.NotWithin(pick(r, nft.Saddr(f), nft.Daddr(f)), prefix),
		nft.InInterface(iface), nft.NotInInterface(iface), nft.SaddrLocal(), nft.DaddrLocal(),
		nft.DaddrNotLocal(),
		nft.CtStatusDNAT(), nft.MarkHas(bits), nft.SetMarkBits(bits), nft.FlipMarkBits(bits),
		nft.SetPriorityBits(1, ^uint32(1)<<r.IntN(24)),
		nft.SetPriorityTo(offset + mod), nft.SetPriority(nft.Random(mod, offset)),
		nft.SetPriority(nft.Jhash(mod, 1+r.Uint32N(9), offset, client...)),
	}
	for _, s := range sets {
		if !s.Verdicts && s.Data.String() == "" {
			statements = append(statements, nft.In(s.Set, s.key...), nft.NotIn(s.Set, s.key...))
		}
		if s.Dynamic {
			statements = append(statements, nft.Update(s.Set, time.Duration(r.IntN(1e6))*time.Second, s.key...))
		}
	}
	for _, c := range r.counters {
		statements = append(statements, nft.Count(c))
	}
	return pick(r, statements...)
}

// last makes a statement that ends a rule.
func (r *random) last(sets []keyedSet, chains []*nft.Chain, nat bool) nft.Statement {
	f := r.family
	statements := []nft.Statement{nft.Drop(), nft.SetMarkBits(1), nft.Reject(f), nft.MatchL4Proto(udp)}
	for _, c := range chains {
		statements = append(statements, nft.Goto(c.Name), nft.Jump(c.Name))
	}
	if nat {
		statements = append(statements, nft.MasqueradeFullyRandom())
	}
	for _, s := range sets {
		switch {
		case s.Verdicts:
			statements = append(statements, nft.VMap(s.Set, s.key...))
		case nat && slices.Contains(names(s.Key), "inet_proto") && len(names(s.Data)) == 2:
			statements = append(statements, nft.DNATMap(f, s.Set, s.key...))
		}
	}
	return pick(r, statements...)
}

// rows makes rows for the sets of a table.
func (r *random) rows(t *nft.Table) []nft.Row {
	var rows []nft.Row
	for _, s := range t.Sets {
		seen := make(map[nft.Tuple]bool)
		if s.Dynamic {
			continue
		}
		for range r.IntN(8) {
			row := r.row(s)
			if seen[row.Key] {
				continue
			}
			seen[row.Key] = true
			row.Comment = r.comment()
			rows = append(rows, row)
		}
	}
	return rows
}

// row makes a row.
func (r *random) row(s *nft.Set) nft.Row {
	row := nft.Row{Set: s}
	for _, field := range names(s.Key) {
		switch field {
		case "ipv4_addr", "ipv6_addr":
			row.Key = row.Key.Addr(r.addr())
		case "inet_proto":
			row.Key = row.Key.Proto(pick(r, tcp, udp, sctp))
		case "inet_service":
			row.Key = row.Key.Port(uint16(r.IntN(4)))
		default:
			row.Key = row.Key.Integer(r.Uint32N(3) * 32768)
		}
	}
	switch {
	case s.Verdicts:
		row.Verdict = pick(r, nft.VerdictDrop, nft.VerdictAccept, nft.VerdictReturn)
	case s.Data.String() != "":
		row.Data = nft.Tuple{}.Addr(r.addr())
		if len(names(s.Data)) > 1 {
			row.Data = row.Data.Port(uint16(r.IntN(65536)))
		}
	}
	return row
}

// names returns the names of the types of fields.
func names(f nft.Fields) []string { return strings.Split(f.String(), " . ") }
