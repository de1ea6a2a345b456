package nft_test

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/script"
)

// program is the program of a script that changes and reads a table. Another
// program commits, too. These are its steps, besides the standard ones:
//
//	table NAME [owned]             the table of the next steps, lb by default
//	load FILE                      loads a file with nft
//	add-table, add-chain NAME [TYPE], set NAME TYPE…, add-set NAME
//	add-row SET KEY [: DATA], delete-row SET KEY, add-rule CHAIN STATEMENT…
//	delete table|chain|set|counter|rule …, flush chain|set NAME
//	tag N, isolate, expect, reset, size  change and describe the batch
//	commit [keep], other           commits, or another program does
//	problems                       prints the problems of the last commit
//	listing, unchanged             the ruleset as nft lists it
//	generation                     prints the generations since the last time
//	chains, rules CHAIN…, read-rows SET, find-row SET KEY, find-table
//	counters, find-counter NAME, nothing
//	delete-rule CHAIN N, again-rule CHAIN N   with rules that were read
//	close                          ends the other program
type program struct {
	t           testing.TB
	family      nft.Family
	conn, other *nft.Conn
	table       *nft.Table
	batch       *nft.Batch
	refused     error               // of the last commit
	sets        map[string]*nft.Set // that the kernel does not have
	rules       []nft.Rule          // that were read last
	handle      map[string]uint64   // of tables
	generation  uint32
	before      string // listing
}

// The scripts run for both families: $F is ip or ip6, $ADDR the type of
// addresses, $A1 to $A9 are addresses, and $TO is an endpoint.
func TestScripts(t *testing.T) {
	t.Parallel()
	for _, f := range families {
		t.Run(f.String(), func(t *testing.T) {
			script.Run(t, script.Suite{Namespace: true, Condition: hasKernel, Setup: func(e *script.Env) (
				map[string]script.Command, error) {
				to := endpointAddr(f)
				many, span := "10.244.1.8:1-2", "10.244.1.8-10.244.1.9:8080"
				if f == nft.IPv6 {
					many, span = "[fd00:244::8]:1-2", "[fd00:244::8]-[fd00:244::9]:8080"
				}
				e.Vars = append(e.Vars, "MANY="+many, "SPAN="+span, "F="+f.String(),
					"ADDR="+nft.Types(nft.TypeAddr(f)).String(),
					"TO="+to.String(),
					"PREFIX="+netip.PrefixFrom(vip(f, 256), vip(f, 0).BitLen()-8).String(),
					"LAST="+vip(f, 255).String(), "FIRST="+vip(f, 256).String())
				for i := range 10 {
					e.Vars = append(e.Vars, fmt.Sprintf("A%d=%s", i, vip(f, i)))
				}
				p := &program{
					t: e.T, family: f, conn: nstest.Open(e.T), other: nstest.Open(e.T),
					sets: make(map[string]*nft.Set), handle: make(map[string]uint64),
				}
				p.setTable("lb")
				return p.commands(), nil
			}})
		})
	}
}

// hasKernel reports whether the kernel has a version: [linux6.2].
func hasKernel(name string) (bool, error) {
	version, ok := strings.CutPrefix(name, "linux")
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); !ok || err != nil {
		return false, fmt.Errorf("unknown condition %s", name)
	}
	return nstest.KernelAtLeast(&testing.T{}, major, minor), nil
}

func (p *program) commands() map[string]script.Command {
	return script.Steps(map[string]any{
		"table": p.setTable, "load": p.load, "set": p.declareSet, "commit": p.commit, "other": p.commitOther,
		"problems": p.problems, "listing": p.listing, "unchanged": p.unchanged, "generation": p.generations,
		"size": p.size, "close": p.close,
		"chains": p.chains, "rules": p.readRules, "read-rows": p.readRows, "find-row": p.findRow,
		"find-table": p.findTable, "counters": p.counters, "find-counter": p.findCounter, "nothing": p.nothing,
		"delete-rule": p.deleteRule, "again-rule": p.againRule,
		"add-rule": p.addRule, "add-set": p.addSet, "add-chain": p.addChain, "delete": p.delete, "flush": p.flush,
		"add-row":    func(row ...string) error { return p.withRow(p.batch.AddRow, row) },
		"delete-row": func(row ...string) error { return p.withRow(p.batch.DeleteRow, row) },
		"add-table":  func() { p.batch.AddTable("") },
		"tag":        func(n uint32) { p.batch.Tag(n) },
		"isolate":    func() { p.batch.Isolate() },
		"reset":      func() { p.batch.Reset() },
		// The next commit expects the generation of the last step generation.
		"expect": func() { p.batch.Expect(p.generation) },
	})
}

// setTable sets the table that the next steps change and read.
func (p *program) setTable(name string, owned ...string) {
	p.table = &nft.Table{Family: p.family, Name: name, Owned: len(owned) > 0}
	p.batch = nft.NewBatch(p.table)
}

// load replaces the ruleset by a file for the nft program.
func (p *program) load(s *script.Script, file string) {
	load(p.t, os.Expand(s.ReadFile(file), s.Getenv))
}

// declareSet declares a set.
func (p *program) declareSet(name string, fields ...string) {
	var types []nft.Type
	for _, name := range fields {
		types = append(types, map[string]nft.Type{
			"ipv4_addr": nft.TypeIPv4Addr, "ipv6_addr": nft.TypeAddr(nft.IPv6), "inet_service": nft.TypeInetService,
		}[name])
	}
	p.sets[name] = &nft.Set{Name: name, Key: nft.Types(types...)}
}

func (p *program) set(name string) (*nft.Set, error) {
	if s := p.sets[name]; s != nil {
		return s, nil
	}
	s, err := p.conn.FindSet(p.table, name)
	if err == nil && s == nil {
		err = fmt.Errorf("no set %s", name)
	}
	return s, err
}

// row returns a row: SET KEY [: DATA].
func (p *program) row(args []string) (row nft.Row, err error) {
	if row.Set, err = p.set(args[0]); err != nil {
		return row, err
	}
	key, data, _ := strings.Cut(strings.Join(args[1:], " "), " : ")
	if row.Key, err = tuple(key); err != nil || data == "" {
		return row, err
	}
	switch chain, isGoto := strings.CutPrefix(data, "goto "); {
	case isGoto:
		row.Verdict = nft.VerdictGoto(chain)
	case data == "drop":
		row.Verdict = nft.VerdictDrop
	default:
		row.Data, err = tuple(data)
	}
	return row, err
}

// tuple parses fields that are separated by dots. A number is a port.
func tuple(text string) (t nft.Tuple, err error) {
	for field := range strings.SplitSeq(text, " . ") {
		if addr, err := netip.ParseAddr(field); err == nil {
			t = t.Addr(addr)
		} else if protocol := map[string]uint8{"tcp": tcp, "udp": udp, "sctp": sctp}[field]; protocol != 0 {
			t = t.Proto(protocol)
		} else if port, err := strconv.ParseUint(field, 10, 16); err == nil {
			t = t.Port(uint16(port))
		} else {
			return t, err
		}
	}
	return t, nil
}

func (p *program) withRow(change func(nft.Row), args []string) error {
	row, err := p.row(args)
	if err == nil {
		change(row)
	}
	return err
}

// addRule adds a rule: CHAIN STATEMENT [ARGUMENT] [comment TEXT].
func (p *program) addRule(chain, statement string, args ...string) error {
	args = append(args, "")
	var rule nft.Rule
	switch statement {
	case "drop":
		rule = nft.NewRule(nft.Drop())
	case "jump":
		rule = nft.NewRule(nft.Jump(args[0]))
	case "dnat-goto":
		rule = nft.NewRule(nft.CtStatusDNAT(), nft.Goto(args[0]))
	case "daddr-in":
		rule = nft.NewRule(nft.In(p.sets[args[0]], nft.Daddr(p.family)))
	case "numgen-0":
		rule = nft.NewRule(nft.VMap(&nft.Set{Name: args[0]}, nft.Random(0, 0)))
	default:
		return fmt.Errorf("unknown statement %s", statement)
	}
	if at := slices.Index(args, "comment"); at >= 0 {
		rule = rule.WithComment(args[at+1])
	}
	p.batch.AddRules(&nft.Chain{Name: chain, Rules: []nft.Rule{rule}})
	return nil
}

func (p *program) addSet(name string) error {
	s, err := p.set(name)
	if err == nil {
		p.batch.AddSet(s)
	}
	return err
}

// addChain adds a chain: NAME [TYPE], of which a base chain is at input.
func (p *program) addChain(name string, kind ...string) {
	c := &nft.Chain{Name: name}
	if len(kind) > 0 {
		c.Hook = &nft.Hook{Type: nft.ChainType(kind[0]), Point: nft.Input}
	}
	p.batch.AddChain(c)
}

func (p *program) delete(kind string, names ...string) error {
	switch kind {
	case "table":
		p.batch.DeleteTable()
	case "chain":
		p.batch.DeleteChain(names[0])
	case "set":
		p.batch.DeleteSet(names[0])
	case "counter":
		p.batch.DeleteCounter(names[0])
	case "rule":
		handle, err := strconv.ParseUint(names[1], 10, 64)
		p.batch.DeleteRule(names[0], handle)
		return err
	}
	return nil
}

func (p *program) flush(kind, name string) {
	if kind == "chain" {
		p.batch.FlushChain(name)
	} else {
		p.batch.FlushSet(name)
	}
}

// commit commits the changes since the last commit. With the word keep, the
// next commit has them again.
func (p *program) commit(keep ...string) error {
	p.refused = p.conn.Commit(p.batch)
	if len(keep) == 0 {
		p.batch.Reset()
	}
	return p.refused
}

// commitOther commits the changes as another program.
func (p *program) commitOther() error {
	defer p.batch.Reset()
	return p.other.Commit(p.batch)
}

// close closes the connection of the other program, and waits until the kernel
// deleted its table: a program that another test starts holds the connection
// between fork and exec.
func (p *program) close() error {
	err := p.other.Close()
	for range 500 {
		if _, exists, _ := p.conn.FindTable(p.table); !exists {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return err
}

// problems returns the problems of the last commit.
func (p *program) problems() (string, error) {
	var e *nft.CommitError
	if !errors.As(p.refused, &e) {
		return "", fmt.Errorf("got %v, want a CommitError", p.refused)
	}
	var text strings.Builder
	for _, problem := range e.Problems {
		fmt.Fprintf(&text, "tag %d: %v\n", problem.Tag, problem)
	}
	return text.String(), nil
}

func (p *program) listing() string {
	p.before = list(p.t)
	return p.before
}

// unchanged fails if the ruleset differs from the last listing.
func (p *program) unchanged() { checkUnchanged(p.t, p.before) }

// generations returns the number of generations since it was called last.
func (p *program) generations() (n int, err error) {
	gen, err := p.conn.Generation()
	for p.generation != 0 && p.generation != gen {
		p.generation = nft.NextGeneration(p.generation)
		n++
	}
	p.generation = gen
	return n, err
}

// size returns the rows and bytes of the batch, and whether it is empty.
func (p *program) size() string {
	size := map[bool]string{true: "no bytes", false: "some bytes"}[p.batch.Len() == 0]
	return fmt.Sprintf("%d rows, %s, empty %v", p.batch.RowCount(), size, p.batch.Empty())
}

// unique returns an error unless handles differ.
func unique(handles []uint64) error {
	slices.Sort(handles)
	if slices.Contains(handles, 0) || len(slices.Compact(slices.Clone(handles))) != len(handles) {
		return fmt.Errorf("got handles %v, want different ones", handles)
	}
	return nil
}

func (p *program) chains() (string, error) {
	chains, err := p.conn.Chains(p.table)
	var text strings.Builder
	var handles []uint64
	for _, c := range chains {
		fmt.Fprint(&text, c.Name)
		if h := c.Hook; h != nil {
			fmt.Fprintf(&text, " type %s hook %s priority %d", h.Type, h.Point, h.Priority)
		}
		fmt.Fprintln(&text)
		handles = append(handles, c.Handle)
	}
	return text.String(), errors.Join(err, unique(handles))
}

// readRules returns the rules of chains, and with their targets and endpoints.
func (p *program) readRules(chains ...string) (string, error) {
	var text strings.Builder
	var handles []uint64
	for _, chain := range chains {
		rules, err := p.conn.Rules(p.table, chain)
		ids, errIDs := p.conn.RuleIDs(p.table, chain)
		if err := errors.Join(err, errIDs); err != nil || len(rules) != len(ids) {
			return "", fmt.Errorf("got %d rules and %d RuleIDs, %w", len(rules), len(ids), err)
		}
		p.rules = rules
		for i, id := range ids {
			if handles = append(handles, id.Handle); rules[i].Handle != id.Handle {
				return "", fmt.Errorf("got handle %d of a rule, and %d of its RuleID", rules[i].Handle, id.Handle)
			}
			text.WriteString(rules[i].Text(p.family))
			if to := rules[i].Target(); to != "" {
				fmt.Fprintf(&text, "; to chain %s", to)
			}
			if to := rules[i].DNAT(); to.IsValid() {
				fmt.Fprintf(&text, "; to endpoint %s", to)
			}
			fmt.Fprintln(&text)
		}
	}
	return text.String(), unique(handles)
}

// deleteRule deletes the n-th rule of the step rules.
func (p *program) deleteRule(chain string, n int) { p.batch.DeleteRule(chain, p.rules[n-1].Handle) }

// againRule adds the n-th rule that was read. It equals itself only.
func (p *program) againRule(chain string, n int) {
	for i, r := range p.rules {
		if got := r.Equal(p.rules[n-1]); got != (i == n-1) {
			p.t.Errorf("rule %d equals rule %d: got %v", i+1, n, got)
		}
	}
	p.batch.AddRules(&nft.Chain{Name: chain, Rules: p.rules[n-1 : n]})
}

// readRows returns the rows of a set, in order.
func (p *program) readRows(name string) (string, error) {
	set, err := p.set(name)
	if err != nil {
		return "", err
	}
	rows, err := p.conn.Rows(p.table, set)
	slices.SortFunc(rows, nft.Row.Compare)
	var text strings.Builder
	for _, r := range rows {
		fmt.Fprintln(&text, r.Text())
	}
	return text.String(), err
}

// findRow returns the row with a key: SET KEY.
func (p *program) findRow(args ...string) (string, error) {
	row, err := p.row(args)
	if err != nil {
		return "", err
	}
	found, err := p.conn.FindRows(p.table, []nft.Row{row})
	if err != nil || found[0].Set == nil {
		return "none", err
	}
	text := found[0].Text()
	if n := found[0].Packets; n > 0 {
		text += fmt.Sprintf("; %d packets", n)
	}
	return text, nil
}

// findTable returns whether the table has a known handle.
func (p *program) findTable() (string, error) {
	found, ok, err := p.conn.FindTable(p.table)
	name, before := p.table.Name, p.handle[p.table.Name]
	if ok {
		p.handle[name] = found.Handle
	}
	switch {
	case err != nil || ok != (found.Handle != 0):
		return "", fmt.Errorf("got %+v, %v, %w", found, ok, err)
	case !ok:
		return "none", nil
	case found.Handle == before:
		return "the same", nil
	}
	return "a new one", nil
}

func (p *program) counters() (string, error) {
	found, err := p.conn.Counters(p.table)
	slices.SortFunc(found, func(a, b nft.Counter) int { return cmp.Compare(a.Name, b.Name) })
	var text strings.Builder
	for _, c := range found {
		fmt.Fprintf(&text, "%s: %d packets\n", c.Name, c.Packets)
	}
	return text.String(), err
}

func (p *program) findCounter(name string) (string, error) {
	found, ok, err := p.conn.FindCounter(p.table, name)
	if !ok {
		return "none", err
	}
	return fmt.Sprintf("%s: %d packets", found.Name, found.Packets), err
}

// nothing fails if the table has an object called c or s.
func (p *program) nothing() error {
	chains, err1 := p.conn.Chains(p.table)
	sets, err2 := p.conn.Sets(p.table)
	rules, err3 := p.conn.Rules(p.table, "c")
	ids, err4 := p.conn.RuleIDs(p.table, "c")
	_, ok, err5 := p.conn.FindChain(p.table, "c")
	set, err6 := p.conn.FindSet(p.table, "s")
	err := errors.Join(err1, err2, err3, err4, err5, err6)
	if len(chains)+len(sets)+len(rules)+len(ids) != 0 || ok || set != nil {
		err = fmt.Errorf("got %v, %v, %v, %v, %v, %v; want nothing", chains, sets, rules, ids, ok, set)
	}
	return err
}
