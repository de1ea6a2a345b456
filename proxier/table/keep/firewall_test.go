package keep_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// newFirewall returns a firewall without rules, in a network namespace of its
// own. Its Keeper writes no table before the first sync.
func newFirewall(t *testing.T) *firewall {
	t.Helper()
	tabletest.NewNamespace(t)
	return startFirewall(t, "firewall", keep.NewGeneration())
}

// startFirewall returns a firewall without rules, as after a start of its
// process.
func startFirewall(t testing.TB, table string, generation *keep.Generation) *firewall {
	t.Helper()
	f := &firewall{
		t: t, kernel: &tabletest.Kernel{Conn: nstest.Open(t)}, table: table,
		limits: keep.DefaultLimits(), rules: make(map[string]*rule), retry: 1,
		slow: make(map[string]time.Duration),
	}
	f.kernel.OnCommit = f.commit
	f.limits.FreeRepair = time.Hour // repairs do not wait
	f.limits.CheckShare = 0         // the scrubber does not rest
	f.limits.FirstRetry = 0         // each sync tries again what is held back
	f.limits.PartTime, f.limits.Spread = time.Hour, time.Hour
	f.Keeper = keep.New(keep.Config{
		Table: f.Program(noSet), Source: f, Generation: generation,
		Open: func() (keep.Kernel, error) { return f.kernel, nil }, Limits: &f.limits,
	})
	must.NoError(t, f.Open())
	t.Cleanup(func() { f.Close() })
	return f
}

func noSet(*nft.Set) bool { return false }

// newServing returns a firewall that was written, with the rules ssh and web.
func newServing(t *testing.T) *firewall {
	t.Helper()
	f := newFirewall(t)
	f.set("ssh", "22 from 10.0.0.1 remembered allow-ssh")
	f.set("web", "80 from 10.0.0.1 from 10.0.0.2 limited 10 counted")
	f.sync(t)
	f.check(t)
	f.forget()
	return f
}

// set sets what a rule wants (see parse).
func (f *firewall) set(name, wants string) {
	r := f.rules[name]
	if r == nil {
		f.tags++
		r = &rule{name: name, tag: f.tags, account: new(keep.Account)}
		f.rules[name] = r
	}
	r.err = nil
	r.wants = f.parse(wants, r)
	f.Touch(r)
}

// setMany sets what a rule for each number wants: * stands for the number.
func (f *firewall) setMany(first, last int, wants string) {
	for n := first; n <= last; n++ {
		f.set(fmt.Sprint("rule-", n), strings.ReplaceAll(wants, "*", fmt.Sprint(n)))
	}
}

// forget forgets the recorded calls.
func (f *firewall) forget() { f.commits, f.asked, f.refused = nil, nil, nil }

func (f *firewall) sync(t *testing.T) {
	t.Helper()
	must.NoError(t, f.Sync())
}

// answer makes the next commits end with these errors, and the later ones
// succeed. It returns the number of commits.
func (f *firewall) answer(errs ...error) (commits *int) {
	f.answers, f.tried = errs, 0
	return &f.tried
}

// commit carries out a commit, or ends with an error of answer.
func (f *firewall) commit(_ *nft.Batch, commit func() error) (err error) {
	if f.tried++; len(f.answers) > 0 {
		err, f.answers = f.answers[0], f.answers[1:]
	}
	switch fault := err.(type) {
	case other:
		tabletest.LoadNFT(f.t, string(fault))
		return commit()
	case nil:
		return commit()
	}
	if err == errLost {
		err = errors.Join(commit(), err)
	}
	return err
}

// errLost is the answer to a commit that succeeds, whose answer is lost.
var errLost = fmt.Errorf("test: %w", nft.ErrUnknownOutcome)

// other stands for a commit that succeeds unless it expects the generation
// before another program carried out these commands.
type other string

func (other) Error() string { return "" }

// rows returns the rows that the table should have.
func (f *firewall) rows(pinned ...*content) []nft.Row {
	all := slices.Clone(f.node)
	for _, r := range f.rules {
		if r.wants != nil {
			all = append(all, r.wants.rows...)
			pinned = append(pinned, r.wants)
		}
	}
	for _, c := range pinned {
		if id, ok := f.ChainOf(c.rows[0]); ok {
			_, row := f.Chain(id)
			all = append(all, row)
		}
	}
	return all
}

// check compares the table with what the rules want.
func (f *firewall) check(t testing.TB) {
	t.Helper()
	for _, text := range f.wrong(t) {
		t.Error(text)
	}
}

// wrong returns the differences between the table and what the rules want.
// Chains and sets on demand of pinned contents, which were wanted before, stay.
func (f *firewall) wrong(t testing.TB, pinned ...*content) (wrong []string) {
	t.Helper()
	rows, want := f.rows(pinned...), make(map[string]bool)
	program := f.Program(func(s *nft.Set) bool {
		return slices.ContainsFunc(rows, func(r nft.Row) bool { return r.Set == s })
	})
	for _, r := range f.rules {
		if r.wants != nil {
			program.Chains, pinned = append(program.Chains, r.wants.chains...), append(pinned, r.wants)
		}
	}
	for _, c := range pinned {
		program.Sets = append(program.Sets, c.sets...)
		if id, ok := f.ChainOf(c.rows[0]); ok {
			chain, _ := f.Chain(id)
			program.Chains = append(program.Chains, chain)
		}
	}
	for _, r := range rows {
		want[r.String()] = true
	}
	for _, s := range program.Sets {
		want["set "+s.Name] = true
	}
	for _, c := range program.CtTimeouts {
		want[timeoutText(*c)] = true
	}
	for _, c := range program.Chains {
		want[chainText(*c, c.Rules)] = true
	}
	for _, line := range f.list(t, program) {
		if !want[line] {
			wrong = append(wrong, fmt.Sprintf("the table has %s, which no rule wants", line))
		}
		delete(want, line)
	}
	for line := range want {
		wrong = append(wrong, "the table does not have "+line)
	}
	return wrong
}

// list returns the sets, timeouts, chains and rows in the kernel, without rows
// of sets that packets fill.
func (f *firewall) list(t testing.TB, program *nft.Table) (lines []string) {
	t.Helper()
	conn := f.kernel.Conn
	sets, err := conn.Sets(program)
	for _, s := range sets {
		lines = append(lines, "set "+s.Name)
	}
	for _, s := range []*nft.Set{ports, hosts, limits, counted, banned} {
		rows, errRows := conn.Rows(program, s)
		err = errors.Join(err, errRows)
		for _, r := range rows {
			lines = append(lines, r.String())
		}
	}
	timeouts, errTimeouts := conn.CtTimeouts(program)
	err = errors.Join(err, errTimeouts)
	for _, c := range timeouts {
		lines = append(lines, timeoutText(c))
	}
	chains, errChains := conn.Chains(program)
	err = errors.Join(err, errChains)
	for _, c := range chains {
		rules, errRules := conn.Rules(program, c.Name)
		err = errors.Join(err, errRules)
		lines = append(lines, chainText(c, rules))
	}
	must.NoError(t, err)
	return lines
}

func timeoutText(c nft.CtTimeout) string { return fmt.Sprintf("ct timeout %s %d", c.Name, c.Policy[0]) }

func chainText(c nft.Chain, rules []nft.Rule) string {
	text := "chain " + c.Name
	if c.Hook != nil {
		text += " hook " + c.Hook.Point.String()
	}
	for _, r := range rules {
		text += "; " + r.Text(nft.IPv4)
	}
	return text
}

// allowed returns the ports in the kernel, in order.
func (f *firewall) allowed(t testing.TB) string {
	t.Helper()
	var all []string
	for _, line := range f.list(t, f.Program(noSet)) {
		if row, ok := strings.CutPrefix(line, "ports "); ok {
			port, _, _ := strings.Cut(row, " ")
			all = append(all, port)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return strings.Compare(fmt.Sprintf("%5s", a), fmt.Sprintf("%5s", b)) })
	return strings.Join(all, " ")
}
