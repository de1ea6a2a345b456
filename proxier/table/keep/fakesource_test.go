package keep_test

import (
	"errors"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// A firewall is a Source: a small table whose owners are rules, which allow
// packets to ports, limit them, and ban hosts. It records the calls of its
// Keeper.
type firewall struct {
	*keep.Keeper
	t       testing.TB
	kernel  *tabletest.Kernel
	answers []error // to the next commits: see answer
	tried   int     // commits
	table   string
	limits  keep.Limits
	slow    map[string]time.Duration // CPU time of rewrites, deletions, and rules
	worked  int
	rules   map[string]*rule
	tags    uint32
	node    []nft.Row  // of no owner
	more    []*nft.Set // of the program
	retry   uint32     // timeout of the program, 0 for none

	commits []string // names of the owners of each transaction, "all: " before those of a rewrite
	asked   []string // names of the owners of calls of Content, after them "-" for the remainder
	refused []string
}

// The sets of the table. Several rules can have a row of hosts. banned exists
// while it has rows, clients when a chain needs it.
var (
	ports   = &nft.Set{Name: "ports", Key: nft.Types(nft.TypeInetService), Verdicts: true}
	hosts   = &nft.Set{Name: "hosts", Key: nft.Types(nft.TypeIPv4Addr)}
	limits  = &nft.Set{Name: "limits", Key: nft.Types(nft.TypeClassID), Verdicts: true}
	counted = &nft.Set{Name: "counted", Key: nft.Types(nft.TypeInetService), Counts: true}
	banned  = &nft.Set{Name: "banned", Key: nft.Types(nft.TypeIPv4Addr)}
	clients = &nft.Set{Name: "clients", Key: nft.Types(nft.TypeIPv4Addr), Dynamic: true}
)

func (f *firewall) Program(used func(*nft.Set) bool) *nft.Table {
	drops := &nft.Counter{Name: "drops"}
	t := &nft.Table{
		Family: nft.IPv4, Name: f.table,
		Counters: []*nft.Counter{drops}, Sets: append([]*nft.Set{ports, hosts, limits, counted}, f.more...),
	}
	services := &nft.Chain{Name: "services", Rules: []nft.Rule{
		nft.NewRule(nft.In(counted, nft.ThDport())), nft.NewRule(nft.VMap(limits, nft.Priority())),
		nft.NewRule(nft.VMap(ports, nft.ThDport())), nft.NewRule(nft.Count(drops), nft.Drop()),
	}}
	if used(banned) {
		t.Sets = append(t.Sets, banned)
		ban := nft.NewRule(nft.In(banned, nft.Saddr(nft.IPv4)), nft.Drop())
		services.Rules = append([]nft.Rule{ban}, services.Rules...)
	}
	toServices := nft.NewRule(nft.In(hosts, nft.Saddr(nft.IPv4)), nft.Jump(services.Name))
	input := &nft.Chain{
		Name: "input", Hook: &nft.Hook{Type: nft.ChainTypeFilter, Point: nft.Input}, Rules: []nft.Rule{toServices},
	}
	t.Chains = []*nft.Chain{services, input}
	if f.retry > 0 {
		timeout := &nft.CtTimeout{Name: "retry", Protocol: unix.IPPROTO_TCP, Policy: nft.TimeoutPolicy{f.retry}}
		retry := &nft.Chain{Name: "retry", Rules: []nft.Rule{nft.NewRule(nft.SetCtTimeout(timeout))}}
		t.CtTimeouts, t.Chains = []*nft.CtTimeout{timeout}, append([]*nft.Chain{retry}, t.Chains...)
	}
	return t
}

func (f *firewall) Owners(bool) iter.Seq[keep.Owner] {
	return func(yield func(keep.Owner) bool) {
		for _, name := range slices.Sorted(maps.Keys(f.rules)) {
			if !yield(f.rules[name]) {
				return
			}
		}
	}
}

func (f *firewall) Content(o keep.Owner, have keep.Content, remainder bool) (keep.Content, error) {
	r, call := o.(*rule), o.String()
	if remainder {
		call += "-"
	}
	f.asked = append(f.asked, call)
	f.work(r.name)
	switch {
	case remainder, r.err != nil:
		return have, r.err
	case r.wants == nil:
		f.work("deletions")
		return nil, nil
	}
	return r.wants, nil
}

func (f *firewall) Cost(o keep.Owner, _ keep.Content) int { return o.(*rule).cost }

func (f *firewall) Together(o keep.Owner, join func(other keep.Owner, takes bool)) {
	keys := func(c keep.Content) map[string]bool {
		all := make(map[string]bool)
		if c, ok := c.(*content); ok && c != nil {
			for _, r := range c.rows {
				all[r.Set.Name+r.KeyText()] = true
			}
		}
		return all
	}
	meet := func(a, b keep.Content) bool {
		have := keys(b)
		for key := range keys(a) {
			if have[key] {
				return true
			}
		}
		return false
	}
	for _, r := range f.rules {
		takes := meet(r.kept.Have(), o.(*rule).wants)
		if r != o && (takes || meet(o.Kept().Have(), r.wants)) {
			join(r, takes)
		}
	}
}

func (f *firewall) ChainOf(r nft.Row) (id uint32, ok bool) {
	rate, ok := strings.CutPrefix(r.Verdict.Chain(), "limit-")
	n, _ := strconv.Atoi(rate)
	return uint32(n), ok && r.Set == ports
}

func (f *firewall) Chain(id uint32) (*nft.Chain, nft.Row) {
	c := &nft.Chain{Name: "limit-" + strconv.Itoa(int(id)), Rules: []nft.Rule{nft.NewRule(nft.LimitRate(id, 5))}}
	return c, nft.Row{Set: limits, Key: nft.Tuple{}.Integer(id), Verdict: nft.VerdictGoto(c.Name)}
}

// Inherit returns a client if the foreign table has the set old-clients.
func (f *firewall) Inherit(_ iter.Seq[*nft.Set], has func(string) bool) []nft.Row {
	if !has("old-clients") {
		return nil
	}
	return []nft.Row{{Set: clients, Key: nft.Tuple{}.Addr(netip.MustParseAddr("10.9.9.9"))}}
}

func (f *firewall) Report(e keep.Event) {
	switch e := e.(type) {
	case keep.Refusal:
		f.refused = append(f.refused, e.Owner.String())
	case *keep.Commit:
		f.committed(e)
	}
}

func (f *firewall) committed(c *keep.Commit) {
	var names []string
	for _, change := range c.Changes {
		r := change.Owner.(*rule)
		names = append(names, r.name)
		if change.Next == nil && r.wants == nil {
			delete(f.rules, r.name)
			f.Forget(r)
		}
	}
	slices.Sort(names)
	who := strings.Join(names, " ")
	if c.Whole {
		who = "all: " + who
	}
	f.commits = append(f.commits, who)
}

func (f *firewall) CountRows() int {
	f.work("rewrites")
	return len(f.rules)
}

// work takes CPU time.
func (f *firewall) work(kind string) {
	for used := time.Duration(0); used < f.slow[kind]; {
		took, _ := keep.ThreadTimeOf(func() error {
			for range 100_000 {
				f.worked++
			}
			return nil
		})
		used += took
	}
}

func (f *firewall) Rows() []nft.Row                   { return f.node }
func (f *firewall) Own() string                       { return ports.Name }
func (f *firewall) Shared(s *nft.Set) bool            { return s == hosts }
func (f *firewall) OnDemand() []*nft.Set              { return []*nft.Set{banned, clients} }
func (f *firewall) HasStableChains(keep.Content) bool { return true }
func (f *firewall) IsIndexed(*nft.Set) bool           { return false }
func (f *firewall) IsVital(*nft.Set) bool             { return false }
func (f *firewall) After(nft.Row) []nft.Row           { return nil }

// staying returns the names of the rules that stay the same.
func (f *firewall) staying() (names []string) {
	for o := range f.Failing() {
		if o.Kept().StaysSame() {
			names = append(names, o.String())
		}
	}
	slices.Sort(names)
	return names
}

// wanted is what Diff compares the table with. Each rule is a group.
type wanted struct{ f *firewall }

func (w wanted) Groups() []string                { return slices.Collect(maps.Keys(w.f.rules)) }
func (w wanted) Owners(name string) []keep.Owner { return []keep.Owner{w.f.rules[name]} }
func (w wanted) Content(o keep.Owner) keep.Content {
	next, _ := w.f.Content(o, o.Kept().Have(), false)
	return next
}

func (w wanted) Extra(rows []nft.Row) ([]nft.Row, error) {
	all := w.f.rows()
	return slices.DeleteFunc(rows, func(r nft.Row) bool {
		return slices.ContainsFunc(all, func(o nft.Row) bool { return r.Compare(o) == 0 })
	}), nil
}

// A rule is an owner. It was removed if it wants nothing.
type rule struct {
	kept    keep.Kept
	name    string
	tag     uint32
	cost    int
	account *keep.Account
	wants   *content
	err     error // why that cannot be written
}

func (r *rule) Kept() *keep.Kept       { return &r.kept }
func (r *rule) Tag() uint32            { return r.tag }
func (r *rule) Account() *keep.Account { return r.account }
func (r *rule) String() string         { return r.name }

// content is the content of a rule.
type content struct {
	rows   []nft.Row
	chains []*nft.Chain
	sets   []*nft.Set
}

func (c *content) Rows(to []nft.Row) []nft.Row { return append(to, c.rows...) }
func (c *content) Chains() []*nft.Chain        { return c.chains }
func (c *content) Sets() []*nft.Set            { return c.sets }
func (c *content) ChainNames() (names []string) {
	for _, chain := range c.chains {
		names = append(names, chain.Name)
	}
	return names
}

// parse returns the content of a rule that accepts packets to a port, or nil
// for none. It sets the cost of the rule, and its account, which is that of
// another rule, and an error.
//
//	80 from 10.0.0.1 from 10.0.0.2   from hosts
//	80 bans 10.0.0.3                 but not from a host
//	80 limited 10                    limits the rate: in a chain on demand
//	80 remembered web                remembers the clients: in a chain of the rule, which needs a set
//	80 counted cost 100 account ssh  counts the packets
//	80 error the port is reserved
func (f *firewall) parse(text string, r *rule) *content {
	words := strings.Fields(text)
	if words[0] == "none" {
		return nil
	}
	number := func(text string) int { n, _ := strconv.Atoi(text); return n }
	key := nft.Tuple{}.Port(uint16(number(words[0])))
	c := &content{rows: []nft.Row{{Set: ports, Key: key, Verdict: nft.VerdictAccept}}}
	for i := 1; i < len(words); i += 2 {
		switch value := words[min(i+1, len(words)-1)]; words[i] {
		case "from", "bans":
			in := map[string]*nft.Set{"from": hosts, "bans": banned}[words[i]]
			c.rows = append(c.rows, nft.Row{Set: in, Key: nft.Tuple{}.Addr(netip.MustParseAddr(value))})
		case "limited":
			c.rows[0].Verdict = nft.VerdictGoto("limit-" + value)
		case "remembered":
			c.rows[0].Verdict = nft.VerdictGoto(value)
			update := nft.NewRule(nft.Update(clients, 3600e9, nft.Saddr(nft.IPv4)))
			c.chains, c.sets = []*nft.Chain{{Name: value, Rules: []nft.Rule{update}}}, []*nft.Set{clients}
		case "counted":
			c.rows = append(c.rows, nft.Row{Set: counted, Key: key})
			i--
		case "cost":
			r.cost = number(value)
		case "account":
			r.account = f.rules[value].account
		case "error":
			r.err = errors.New(strings.Join(words[i+1:], " "))
			return c
		default:
			f.t.Fatalf("a rule has no %s", words[i])
		}
	}
	return c
}
