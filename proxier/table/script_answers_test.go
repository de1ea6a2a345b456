package table_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
	"github.com/nftproxy/nftproxy/test/script"
)

// answers are what a script can ask a process for. It is the observer of the
// Tables.
type answers struct {
	events  tabletest.Events
	plans   map[string]*ruleset.Plan // that the kernel has, by service port
	health  []string                 // ready endpoints of Services with a health check
	parts   []string                 // service ports of each transaction of the last step
	syncs   []string
	removed int               // plans that were removed
	counted map[string]string // last answers about counters
}

func newAnswers() answers {
	return answers{plans: make(map[string]*ruleset.Plan), counted: make(map[string]string)}
}

func (a *answers) reset() {
	clear(a.plans)
	clear(a.counted)
	a.health, a.syncs, a.events = nil, nil, nil
}

// Committed implements table.Observer.
func (a *answers) Committed(c *table.Commit) {
	var names []string
	for _, change := range c.Changes {
		p := cmp.Or(change.After, change.Before)
		if p == nil {
			continue
		}
		key := c.Family.String() + " " + p.Name() + p.Port.Protocol.String()
		if a.plans[key] = change.After; p != change.After {
			a.removed++
		}
		names = append(names, p.Name())
	}
	a.parts = append(a.parts, cmp.Or(strings.Join(names, " "), "nothing"))
	for _, s := range c.Services {
		if s.Service != nil && s.Service.HealthCheckNodePort > 0 {
			a.health = append(a.health, fmt.Sprint(s.Name, " ", s.ReadyEndpoints))
		}
	}
}

// Synced implements table.Observer.
func (a *answers) Synced(r keep.SyncResult) {
	text := "update"
	if r.Full {
		text = "rewrite"
	}
	a.syncs = append(a.syncs, text)
}

func (a *answers) answerSteps(e *engine) map[string]script.Command {
	all := map[string]script.Command{
		"events": a.showEvents, "health": a.take(&a.health), "syncs": a.take(&a.syncs), "parts": a.showParts,
		"served": a.served, "targets": a.targets, "frontends": e.frontends, "service": e.service,
		"serving": a.serving, "numbers": a.numbers, "unused": e.unused,
		"affinity-sets": a.affinitySets,
		"rows":          e.rows, "row-count": e.rowCount, "differences": e.differences,
		"listing": e.listing, "reference": e.reference,
		"refused": e.state(func(s *table.Stats) string {
			var names []string
			for _, p := range s.RefusedPorts {
				names = append(names, p.Name)
			}
			return cmp.Or(strings.Join(names, " "), "none")
		}),
		"waiting": e.state(func(s *table.Stats) string {
			var all []string
			for _, p := range s.WaitingPorts {
				all = append(all, fmt.Sprint(p.Name, " for ", p.Frontend, " of ", p.Owner))
			}
			return cmp.Or(strings.Join(all, "\n"), "none")
		}),
		"repair-kinds": e.state(func(s *table.Stats) string {
			return strings.NewReplacer("map[", "", "]", "", ":", " ").Replace(fmt.Sprint(s.Repairs))
		}),
		"contested":  e.state(func(s *table.Stats) string { return fmt.Sprint(s.Contested) }),
		"reduced":    e.state(func(s *table.Stats) string { return fmt.Sprint(s.Reduced) }),
		"up-to-date": e.ask(func(t *table.Table) string { return fmt.Sprint(t.UpToDate()) }),
		"next": e.ask(func(t *table.Table) string {
			switch wait, waits := t.Next(); {
			case !waits:
				return "none"
			case wait > 0:
				return "later"
			}
			return "now"
		}),
		"no-local": e.state(func(s *table.Stats) string {
			return fmt.Sprint(s.NoLocalEndpoints.Internal, " ", s.NoLocalEndpoints.External)
		}),
		"removed":  a.since("removed", func() []int { return []int{a.removed} }),
		"scrubbed": e.ask(func(t *table.Table) string { return fmt.Sprint(t.Scrubbed()) }),
		"rests": e.ask(func(t *table.Table) string {
			return fmt.Sprint(t.Rest() > 0 && t.Rest() <= 300*time.Millisecond)
		}),
		"commits": a.since("commits", func() []int { return []int{e.commits} }),
	}
	for name, count := range map[string]func(*table.Stats) int{
		"rewrites":     func(s *table.Stats) int { return s.Rewrites },
		"repairs":      func(s *table.Stats) int { return sum(maps.Values(s.Repairs)) },
		"transactions": func(s *table.Stats) int { return s.Transactions },
		"refusals":     func(s *table.Stats) int { return s.Refusals },
		"conflicts":    func(s *table.Stats) int { return s.Conflicts },
		"rows-written": func(s *table.Stats) int { return s.RowsWritten },
	} {
		all[name] = a.since(name, func() (n []int) {
			for _, t := range e.tables {
				s := t.Stats()
				n = append(n, count(&s))
			}
			return n
		})
	}
	return all
}

// take is a step that returns what was recorded since it last ran.
func (a *answers) take(from *[]string) script.Command {
	return func(*script.Script, []string) (string, error) {
		text := strings.Join(*from, "\n") + "\n"
		*from = nil
		return cmp.Or(strings.TrimSpace(text), "none") + "\n", nil
	}
}

// since is a step that returns counts since it last ran.
func (a *answers) since(name string, count func() []int) script.Command {
	before := make(map[int]int)
	return func(*script.Script, []string) (string, error) {
		if a.counted[name] == "" {
			clear(before)
		}
		a.counted[name] = "known"
		var all []string
		for i, n := range count() {
			all = append(all, fmt.Sprint(n-before[i]))
			before[i] = n
		}
		return strings.Join(all, " ") + "\n", nil
	}
}

// ask is a step that returns an answer of each Table.
func (e *engine) ask(f func(*table.Table) string) script.Command {
	return func(*script.Script, []string) (string, error) {
		var all []string
		for _, t := range e.tables {
			all = append(all, f(t))
		}
		return strings.Join(all, "\n") + "\n", nil
	}
}

func (e *engine) state(f func(*table.Stats) string) script.Command {
	return e.ask(func(t *table.Table) string {
		s := t.Stats()
		return f(&s)
	})
}

// showEvents returns the events since it last ran. With a reason, it returns
// only the objects of these events.
func (a *answers) showEvents(_ *script.Script, args []string) (string, error) {
	var all []string
	for _, e := range a.events {
		text := fmt.Sprintf("%s %s/%s: %s", e.Reason, e.Namespace, e.Name, e.Note)
		if len(args) > 0 && e.Reason == args[0] {
			text = e.Namespace + "/" + e.Name
		} else if len(args) > 0 {
			continue
		}
		all = append(all, text)
	}
	a.events = nil
	return cmp.Or(strings.Join(all, "\n"), "none") + "\n", nil
}

// showParts returns the service ports of each transaction of the last step.
func (a *answers) showParts(*script.Script, []string) (string, error) {
	return cmp.Or(strings.Join(a.parts, ", "), "none") + "\n", nil
}

// plansOf returns the plans that the kernel has of a Service.
func (a *answers) plansOf(name string) (all []*ruleset.Plan) {
	for _, key := range slices.Sorted(maps.Keys(a.plans)) {
		if p := a.plans[key]; p != nil && p.Service.Name.String() == name {
			all = append(all, p)
		}
	}
	return all
}

// served returns the numbers of frontends and of endpoints of Services in the
// kernel.
func (a *answers) served(_ *script.Script, names []string) (string, error) {
	var all []string
	for _, name := range names {
		frontends, endpoints := 0, 0
		for _, p := range a.plansOf(name) {
			frontends, endpoints = frontends+len(p.Frontends), endpoints+len(p.Cluster)
		}
		all = append(all, fmt.Sprintf("%d/%d", frontends, endpoints))
	}
	return strings.Join(all, " ") + "\n", nil
}

// targets returns the endpoints of a Service in the kernel, with the ids and
// the groups of session affinity.
func (a *answers) targets(_ *script.Script, args []string) (string, error) {
	var all []string
	for _, p := range a.plansOf(args[0]) {
		for _, t := range p.Cluster {
			text := t.AddrPort().String()
			if t.ID != 0 {
				text += fmt.Sprint(" id ", t.ID)
			}
			if t.Group != 0 {
				text += fmt.Sprint(" group ", t.Group)
			}
			all = append(all, text)
		}
	}
	slices.Sort(all)
	return cmp.Or(strings.Join(all, "\n"), "none") + "\n", nil
}

// serving returns the number of endpoints that established UDP flows of a
// Service may use.
func (a *answers) serving(_ *script.Script, args []string) (string, error) {
	n := 0
	for _, p := range a.plansOf(args[0]) {
		n += len(p.Serving)
	}
	return fmt.Sprintln(n), nil
}

// affinitySets returns the affinity sets of the Services of a namespace.
func (a *answers) affinitySets(_ *script.Script, args []string) (string, error) {
	sets := make(map[uint8]bool)
	for _, p := range a.plans {
		if p.HasAffinity() && p.Service.Name.Namespace == args[0] {
			sets[p.ClientSet] = true
		}
	}
	var text string
	for _, set := range slices.Sorted(maps.Keys(sets)) {
		text += fmt.Sprintln(set)
	}
	return text, nil
}

// numbers returns the numbers of service ports, which must be unique.
func (a *answers) numbers(*script.Script, []string) (text string, err error) {
	owners := make(map[uint32]string)
	for _, key := range slices.Sorted(maps.Keys(a.plans)) {
		if p := a.plans[key]; p != nil && p.Number != 0 {
			if other := owners[p.Number]; other != "" {
				err = fmt.Errorf("%s and %s have the number %d", other, p.Name(), p.Number)
			}
			owners[p.Number] = p.Name()
			text += fmt.Sprintln(p.Name(), p.Number)
		}
	}
	return cmp.Or(text, "none\n"), err
}

// unused returns why new connections do not use endpoints of a Service, and how
// many.
func (e *engine) unused(_ *script.Script, args []string) (string, error) {
	count := make(map[string]int)
	for _, t := range e.tables {
		view, _ := t.Service(parseName(args[0]))
		for _, p := range view.Ports {
			for _, u := range p.Endpoints {
				count[string(u.Cluster)]++
			}
		}
	}
	var all []string
	for _, why := range slices.Sorted(maps.Keys(count)) {
		if why != "" {
			all = append(all, fmt.Sprint(why, " ", count[why]))
		}
	}
	return cmp.Or(strings.Join(all, "\n"), "none") + "\n", nil
}

// frontends returns the wanted frontends of a Service, their state, and the
// numbers of endpoints.
func (e *engine) frontends(_ *script.Script, args []string) (string, error) {
	var lines []string
	for _, t := range e.tables {
		view, ok := t.Service(parseName(args[0]))
		if !ok {
			return "unknown\n", nil
		}
		for _, port := range view.Ports {
			for _, f := range port.Frontends {
				at := "node"
				if f.Address.IsValid() {
					at = f.Address.String()
				}
				text := fmt.Sprintf("%s %s %d %s %d of %d endpoints", f.Kind, at, f.Port, f.State, f.UsedEndpoints,
					f.AllEndpoints)
				if f.Owner != "" {
					text += " owner " + f.Owner
				}
				lines = append(lines, text)
			}
		}
	}
	return cmp.Or(strings.Join(lines, "\n"), "none") + "\n", nil
}

// service returns what is unusual about a Service: pending, refused, reduced.
func (e *engine) service(_ *script.Script, args []string) (string, error) {
	var words []string
	for _, t := range e.tables {
		view, ok := t.Service(parseName(args[0]))
		if !ok {
			words = append(words, "unknown")
		}
		if view.Pending {
			words = append(words, "pending")
		}
		for _, p := range view.Ports {
			if p.Refusal != "" {
				words = append(words, "refused "+p.Name)
			}
		}
		for _, how := range view.Reductions {
			words = append(words, how)
		}
	}
	return cmp.Or(strings.Join(words, "\n"), "written") + "\n", nil
}

// writes reports whether a transaction writes a service port as it is wanted.
func (e *engine) writes(port string) bool {
	for _, t := range e.tables {
		name, portName, _ := strings.Cut(port, ":")
		view, ok := t.Service(parseName(name))
		for _, p := range view.Ports {
			if ok && view.Pending && p.Name == portName && p.Refusal == "" {
				return true
			}
		}
	}
	return false
}

// tagOf returns the tag of a service port.
func (e *engine) tagOf(port string) uint32 {
	name, portName, _ := strings.Cut(port, ":")
	for _, t := range e.tables {
		view, _ := t.Service(parseName(name))
		for _, p := range view.Ports {
			if p.Name == portName {
				return p.Tag
			}
		}
	}
	return 0
}

// rows returns the rows of a set in the kernel, sorted: rows service-classes.
func (e *engine) rows(_ *script.Script, args []string) (string, error) {
	var lines []string
	for _, t := range e.tables {
		expected, err := t.Expected(nil)
		if err != nil {
			return "", err
		}
		set, err := expected.Set(args[0])
		if err != nil {
			return "", err
		}
		found, err := e.conn.Rows(&nft.Table{Family: t.Family(), Name: ruleset.TableName}, set)
		if err != nil {
			return "", err
		}
		for _, r := range found {
			text := r.Text()
			if set.Counts {
				text += fmt.Sprint(" packets ", r.Packets)
			}
			lines = append(lines, text)
		}
	}
	slices.Sort(lines)
	return cmp.Or(strings.Join(lines, "\n"), "none") + "\n", nil
}

// rowCount returns the numbers of rows of sets, as metrics show them, or of all
// sets together.
func (e *engine) rowCount(_ *script.Script, sets []string) (string, error) {
	var all []string
	for _, t := range e.tables {
		if len(sets) == 0 {
			all = append(all, fmt.Sprint(sum(maps.Values(t.Stats().Rows))))
		}
		for _, set := range sets {
			all = append(all, fmt.Sprint(t.Stats().Rows[set]))
		}
	}
	return strings.Join(all, " ") + "\n", nil
}

// differences compares the table with the wanted one, as `nftproxy diff` does.
func (e *engine) differences(*script.Script, []string) (string, error) {
	var lines []string
	for _, t := range e.tables {
		steps, err := table.DiffSteps(t, "")
		if err != nil {
			return "", err
		}
		lines = append(lines, table.Differences(steps)...)
	}
	return cmp.Or(strings.Join(lines, "\n"), "none") + "\n", nil
}

// listing writes the table as nft lists it to a file, in an order that does not
// depend on the order of writing (see table.Without).
func (e *engine) listing(s *script.Script, args []string) (string, error) {
	var text string
	for _, f := range e.families {
		text += strings.Join(table.Listing(e.t, f, args[1:]...), "\n") + "\n"
	}
	return "", os.WriteFile(s.MkAbs(args[0]), []byte(text), 0o600)
}

// reference writes a listing in the same form to a file, after nft has loaded a
// table into an empty namespace: reference table.nft want.
func (e *engine) reference(s *script.Script, args []string) (string, error) {
	blocks, err := table.LoadedListing(e.families[0], s.ReadFile(args[0]))
	if err != nil {
		return "", err
	}
	text := strings.Join(table.Without(blocks, args[2:]...), "\n") + "\n"
	return "", os.WriteFile(s.MkAbs(args[1]), []byte(text), 0o600)
}

func sum(all func(func(int) bool)) (n int) {
	for v := range all {
		n += v
	}
	return n
}
