package keep_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
	"github.com/nftproxy/nftproxy/test/script"
)

// Scripts are about a firewall (see fakesource_test.go) without rules. Counts
// are since the step last ran.
func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{Namespace: true, Setup: func(env *script.Env) (map[string]script.Command, error) {
		e := &engine{startFirewall(env.T, "firewall", keep.NewGeneration()), make(map[string]int)}
		all := make(map[string]script.Command)
		for _, name := range strings.Fields("sync resync check rewrite nft before fail lose rule node sets limit " +
			"slow no-counts restart retry timeouts " +
			"wanted commits asked stays refused ports doubt failing handle next up-to-date " +
			"repairs uses-banned rewrites damage-rewrites node-rewrites transactions rows-written cleanup-failures") {
			all[name] = func(_ *script.Script, args []string) (string, error) {
				text, err := e.change(name, args)
				if text == "" {
					text = e.ask(name)
				}
				return text, err
			}
		}
		return all, nil
	}})
}

type engine struct {
	*firewall
	seen map[string]int // counts
}

// change runs a step that changes something. It returns the answer of another
// step as "".
func (e *engine) change(name string, args []string) (text string, err error) {
	rest := strings.Join(args, " ")
	switch name {
	case "sync", "resync", "check", "rewrite":
		e.forget()
		if name == "rewrite" {
			e.Distrust("test", "test")
		}
		do := map[string]func() error{"sync": e.Sync, "resync": e.Resync, "check": e.Check, "rewrite": e.Sync}
		err = do[name]()
	case "nft":
		tabletest.LoadNFT(e.t, strings.ReplaceAll(rest, "; ", "\n"))
	case "before":
		e.answers = append(e.answers, other(strings.ReplaceAll(strings.TrimPrefix(rest, "nft "), "; ", "\n")))
	case "lose":
		e.answers = append(e.answers, errLost)
	case "fail":
		e.answers = append(e.answers, e.fault(rest)...)
	case "rule": // rule web 80 from 10.0.0.1 cost 100
		err = e.setRule(args[0], args[1:])
	case "node":
		e.node = nil
		for _, host := range args {
			e.node = append(e.node, allow(0).from(host).rows[1])
		}
		e.TouchProgram()
	case "retry": // retry 5: the program has this timeout, retry 0: none
		n, _ := strconv.Atoi(args[0])
		e.retry = uint32(n)
		e.TouchProgram()
	case "sets":
		e.more = nil
		for _, set := range args {
			e.more = append(e.more, &nft.Set{Name: set, Key: hosts.Key})
		}
		e.TouchProgram()
	case "limit":
		e.setLimit(args[0], args[1])
	case "slow": // slow rewrites 200ms
		e.slow[args[0]], err = time.ParseDuration(args[1])
	case "no-counts":
		e.kernel.NoCounts = true
	case "restart":
		retry := e.retry
		e.firewall = startFirewall(e.t, e.table, keep.NewGeneration())
		for name := range e.seen {
			if name != "retry" {
				delete(e.seen, name)
			}
		}
		e.retry = retry
	case "wanted": // wanted '80 limited 10': what a rule wanted stays, as far as it is on demand
		var pinned []*content
		for _, text := range args {
			c, _ := e.content(strings.Fields(text), &rule{})
			pinned = append(pinned, c)
		}
		if wrong := e.wrong(e.t, pinned...); len(wrong) > 0 {
			err = fmt.Errorf("%s", strings.Join(wrong, "\n"))
		}
	default:
		return "", nil
	}
	return " ", err
}

// setRule sets what a rule wants: nothing, if it is none.
func (e *engine) setRule(name string, words []string) error {
	if words[0] == "none" {
		e.set(name, nil)
		return nil
	}
	r := e.set(name, nil)
	c, err := e.content(words, r)
	r.wants = c
	return err
}

// content returns what a rule wants, and sets its cost and account.
func (e *engine) content(words []string, r *rule) (*content, error) {
	n := func(text string) int { n, _ := strconv.Atoi(text); return n }
	c := allow(uint16(n(words[0])))
	for i := 1; i < len(words); i += 2 {
		switch value := words[min(i+1, len(words)-1)]; words[i] {
		case "from":
			c.from(value)
		case "bans":
			c.bans(value)
		case "limited":
			c.limited(n(value))
		case "remembered":
			c.remembered(value)
		case "counted":
			c.counted()
			i--
		case "cost":
			r.cost = n(value)
		case "account":
			r.account = e.rules[value].account
		case "error":
			r.err = fmt.Errorf("%s", strings.Join(words[i+1:], " "))
			return c, nil
		default:
			return nil, fmt.Errorf("a rule has no %s", words[i])
		}
	}
	return c, nil
}

func (e *engine) setLimit(name, value string) {
	duration, _ := time.ParseDuration(value)
	number, _ := strconv.Atoi(value)
	switch name {
	case "parts": // syncs write one part
		e.limits.HeavyCost, e.limits.PartCost, e.limits.Time = number, number, -1
	case "time":
		e.limits.Time = duration
	case "part-time":
		e.limits.PartTime = duration
	case "burst":
		e.limits.Burst = duration
	case "first-retry":
		e.limits.FirstRetry = duration
	case "first-pause":
		e.limits.FirstPause = duration
	case "cold-bytes":
		e.limits.ColdBytes = number
	}
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

// ask returns an answer of the firewall.
func (e *engine) ask(name string) string {
	s := e.Stats()
	counts := map[string]int{
		"rewrites": s.Rewrites, "damage-rewrites": s.RewriteCauses[keep.RewriteDamage],
		"node-rewrites": s.RewriteCauses[keep.RewriteNode], "transactions": s.Transactions,
		"rows-written": s.RowsWritten, "cleanup-failures": s.CleanupFailures,
	}
	if n, ok := counts[name]; ok {
		n, e.seen[name] = n-e.seen[name], n
		return fmt.Sprintln(n)
	}
	if name == "timeouts" {
		return cmp.Or(e.timeouts(), "none") + "\n"
	}
	wait, waits := e.Next()
	var failing []string
	for o := range e.Failing() {
		failing = append(failing, o.String())
	}
	slices.Sort(failing)
	return cmp.Or(map[string]string{
		"commits": strings.Join(e.commits, ", "), "asked": strings.Join(e.asked, " "),
		"stays": strings.Join(e.stays, " "), "refused": strings.Join(e.refused, " "),
		"ports": e.allowed(e.t), "doubt": e.InDoubt(), "failing": strings.Join(failing, " "),
		"uses-banned": fmt.Sprint(e.Uses(banned)),
		"handle":      fmt.Sprint(e.handle(e.t)), "up-to-date": fmt.Sprint(e.UpToDate()),
		"repairs": strings.NewReplacer("map[", "", "]", "", ":", " ").Replace(fmt.Sprint(s.Repairs)),
		"next":    map[bool]string{true: map[bool]string{true: "now", false: "later"}[wait == 0]}[waits],
	}[name], "none") + "\n"
}
