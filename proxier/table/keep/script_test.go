package keep_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/test/script"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// Scripts are about a firewall (see fakesource_test.go) without rules. The
// words of fail are those of TestFaults. Counts are since the step last ran.
func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{Namespace: true, Setup: func(env *script.Env) (map[string]script.Command, error) {
		e := &engine{firewall: startFirewall(env.T, "firewall", keep.NewGeneration()), seen: make(map[string]int)}
		steps := map[string]any{
			"sync":    func() error { e.forget(); return e.Sync() },
			"resync":  func() error { e.forget(); return e.Resync() },
			"check":   func() error { e.forget(); return e.Check() },
			"rewrite": func() error { e.forget(); e.Distrust("test", "test"); return e.Sync() },
			"nft":     func(words ...string) { tabletest.LoadNFT(env.T, lines(words)) },
			"before":  func(_ string, nft ...string) { e.answers = append(e.answers, other(lines(nft))) },
			"fail":    func(words ...string) { e.answers = append(e.answers, e.fault(strings.Join(words, " "))...) },
			"lose":    func(_ ...string) { e.answers = append(e.answers, errLost) },
			"rule":    func(name string, wants ...string) { e.set(name, strings.Join(wants, " ")) },
			"rules":   func(first, last int, wants ...string) { e.setMany(first, last, strings.Join(wants, " ")) },
			"node":    e.setNode, "sets": e.setSets, "retry": e.setRetry,
			"limit": func(args ...string) error {
				_, err := script.SetFields(&e.limits, args)
				return err
			},
			"slow":      func(kind string, d time.Duration) { e.slow[kind] = d },
			"no-counts": func() { e.kernel.NoCounts = true },
			// checks until a repair that had to wait has written everything.
			"check-until-rewritten": e.checkUntilRewritten,
			"restart":               e.restart, "wanted": e.wanted,
		}
		for name, answer := range e.answersByName() {
			steps[name] = func() string { return cmp.Or(answer(), "none") + "\n" }
		}
		for name, count := range counts {
			steps[name] = func() (n int) {
				n, e.seen[name] = count(e.Stats())-e.seen[name], count(e.Stats())
				return n
			}
		}
		return script.Steps(steps), nil
	}})
}

// lines returns commands of nft, which semicolons separate.
func lines(words []string) string { return strings.ReplaceAll(strings.Join(words, " "), "; ", "\n") }

type engine struct {
	*firewall
	seen  map[string]int // counts, and handles of timeouts
	since time.Time      // of the change that waited
}

func (e *engine) checkUntilRewritten() error {
	before := e.Stats().Rewrites
	for range 1000 {
		err := e.Check()
		if _, waits := errors.AsType[*keep.Damage](err); err != nil && !waits || e.Stats().Rewrites > before {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.New("nothing is rewritten")
}

// setNode sets the hosts of no rule.
func (e *engine) setNode(hosts ...string) {
	e.node = nil
	for _, host := range hosts {
		e.node = append(e.node, e.parse("0 from "+host, &rule{}).rows[1])
	}
	e.TouchProgram()
}

// setSets sets further sets of the program.
func (e *engine) setSets(names ...string) {
	e.more = nil
	for _, name := range names {
		e.more = append(e.more, &nft.Set{Name: name, Key: hosts.Key})
	}
	e.TouchProgram()
}

// setRetry sets the timeout of the program; 0 stands for none.
func (e *engine) setRetry(timeout uint32) {
	e.retry = timeout
	e.TouchProgram()
}

// restart starts another process.
func (e *engine) restart() {
	retry := e.retry
	e.firewall = startFirewall(e.t, e.table, keep.NewGeneration())
	maps.DeleteFunc(e.seen, func(name string, _ int) bool { return name != "retry" })
	e.retry = retry
}

// wanted compares the table with what the rules want. What a rule wanted stays,
// as far as it is on demand: wanted '80 limited 10'.
func (e *engine) wanted(before ...string) error {
	var pinned []*content
	for _, text := range before {
		pinned = append(pinned, e.parse(text, &rule{}))
	}
	if wrong := e.wrong(e.t, pinned...); len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "\n"))
	}
	return nil
}

// timeouts returns the timeouts in the kernel, each with "new" unless it is the
// object that the step last found.
func (e *engine) timeouts() string {
	found, err := e.kernel.Conn.CtTimeouts(e.Program(noSet))
	if err != nil {
		e.t.Error(err)
	}
	var all []string
	for _, c := range found {
		text := fmt.Sprintf("%s %d", c.Name, c.Policy[0])
		if handle := int(c.Handle); e.seen[c.Name] != handle {
			e.seen[c.Name], text = handle, text+" new"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

var counts = map[string]func(keep.Stats) int{
	"rewrites":         func(s keep.Stats) int { return s.Rewrites },
	"damage-rewrites":  func(s keep.Stats) int { return s.RewriteCauses[keep.RewriteDamage] },
	"node-rewrites":    func(s keep.Stats) int { return s.RewriteCauses[keep.RewriteNode] },
	"transactions":     func(s keep.Stats) int { return s.Transactions },
	"rows-written":     func(s keep.Stats) int { return s.RowsWritten },
	"cleanup-failures": func(s keep.Stats) int { return s.CleanupFailures },
}

func (e *engine) answersByName() map[string]func() string {
	return map[string]func() string{
		"commits": func() string { return strings.Join(e.commits, ", ") },
		"asked":   func() string { return strings.Join(e.asked, " ") },
		"stays":   func() string { return strings.Join(e.staying(), " ") },
		"refused": func() string { return strings.Join(e.refused, " ") },
		"failing": func() string {
			var all []string
			for o := range e.Failing() {
				all = append(all, o.String())
			}
			slices.Sort(all)
			return strings.Join(all, " ")
		},
		"ports":       func() string { return e.allowed(e.t) },
		"doubt":       func() string { return e.InDoubt() },
		"uses-banned": func() string { return fmt.Sprint(e.Uses(banned)) },
		"handle":      func() string { return fmt.Sprint(e.handle(e.t)) },
		"up-to-date":  func() string { return fmt.Sprint(e.UpToDate()) },
		"damaged":     func() string { return fmt.Sprint(e.Damaged()) },
		"timeouts":    e.timeouts,
		"waits": func() string { // since when a change waits
			for _, w := range e.Waits() {
				before := e.since
				e.since = w.Since
				return map[bool]string{true: "as before", false: "since now"}[w.Since.Equal(before)]
			}
			return ""
		},
		"repairs": func() string {
			return strings.NewReplacer("map[", "", "]", "", ":", " ").Replace(fmt.Sprint(e.Stats().Repairs))
		},
		"next": func() string {
			switch wait, waits := e.Next(); {
			case !waits:
				return ""
			case wait > 0:
				return "later"
			}
			return "now"
		},
	}
}
