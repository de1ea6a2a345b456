package table_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/test/script"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// answers are what a script can ask a process for. It is the observer of the
// Tables.
type answers struct {
	events  tabletest.Events
	plans   map[string]*ruleset.Plan // that the kernel has, by service port
	health  []string                 // ready endpoints of Services with a health check
	parts   []string                 // service ports of each transaction of the last step
	syncs   []string
	removed int              // plans that were removed
	counted map[string][]int // last answers about counts
}

func newAnswers() answers {
	return answers{plans: make(map[string]*ruleset.Plan), counted: make(map[string][]int)}
}

func (a *answers) reset() {
	clear(a.plans)
	clear(a.counted)
	a.health, a.syncs, a.events = nil, nil, nil
}

// observe is a table.Observer.
func (a *answers) observe(_ nft.Family, e table.Event) {
	switch e := e.(type) {
	case *table.Commit:
		a.committed(e)
	case keep.SyncResult:
		a.synced(e)
	}
}

// committed records a transaction.
func (a *answers) committed(c *table.Commit) {
	var names []string
	for _, change := range c.Changes {
		p := cmp.Or(change.After, change.Before)
		if p == nil {
			continue
		}
		key := fmt.Sprint(c.Family, p.Name(), p.Port.Protocol)
		if a.plans[key] = change.After; p != change.After {
			a.removed++
		}
		names = append(names, p.Name().String())
	}
	a.parts = append(a.parts, cmp.Or(strings.Join(names, " "), "chains"))
	for _, s := range c.Services {
		if s.HealthCheckNodePort > 0 {
			a.health = append(a.health, fmt.Sprint(s.Name, " ", s.ReadyEndpoints))
		}
	}
}

// synced records a sync.
func (a *answers) synced(r keep.SyncResult) {
	text := "update"
	if r.Full {
		text = "rewrite"
	}
	a.syncs = append(a.syncs, text)
}

func (a *answers) answerSteps(e *engine) map[string]any {
	all := map[string]any{
		"events": a.showEvents, "served": a.served,
		"health":    a.take(&a.health), // returns the ready endpoints of Services with a health check.
		"syncs":     a.take(&a.syncs),  // returns the kinds of syncs since it last ran.
		"frontends": e.frontends, "service": e.service, "unused": e.unused,
		"rows": e.rows, "row-count": e.rowCount, "differences": e.differences,
		"listing": e.listing, "reference": e.reference,
		// returns the plans that were removed since it last ran.
		"removed": a.since("removed", func() []int { return []int{a.removed} }),
		// returns the commits that failed since it last ran.
		"failed": a.since("failed", func() []int { return []int{e.failed} }),
		// returns the commits since it last ran.
		"commits": a.since("commits", func() []int { return []int{e.commits} }),
		// returns the service ports of each transaction of the last step.
		"parts": e.ask(func(*table.Table, *table.Stats) string { return strings.Join(a.parts, ", ") }),
		// returns the targets of a service port that the kernel has, with ids
		// and groups.
		"targets": a.ofPlans(func(p *ruleset.Plan) (lines []string) {
			for _, t := range p.Cluster {
				text := fmt.Sprint(t.AddrPort(), " id ", t.ID, " group ", t.Group)
				text = strings.TrimSuffix(text, " group 0")
				lines = append(lines, strings.TrimSuffix(text, " id 0"))
			}
			return lines
		}),
		// returns those on this node.
		"local-targets": a.ofPlans(func(p *ruleset.Plan) (lines []string) {
			for _, t := range p.Local {
				lines = append(lines, t.AddrPort().String())
			}
			return lines
		}),
		// returns those that are ejected.
		"ejected": a.ofPlans(func(p *ruleset.Plan) (lines []string) {
			for _, e := range p.Ejected.All() {
				lines = append(lines, e.Endpoint.String())
			}
			if p.Ejected != nil && p.Ejected.Open {
				lines = append(lines, "open")
			}
			if p.Ejected != nil && p.Ejected.NoneHealthy {
				lines = append(lines, "none healthy")
			}
			return lines
		}),
		"eject": e.eject, "prolong": e.prolong, "try": e.try, "unhealthy": e.unhealthy, "ejectable": e.ejectable,
		// returns the service ports without a healthy endpoint.
		"status-none-healthy": e.ask(func(_ *table.Table, s *table.Stats) string {
			return strings.Join(s.NoneHealthy, " ")
		}),
		"infrastructure": e.infrastructure,
		// returns the number of endpoints that serve.
		"serving": a.ofPlans(func(p *ruleset.Plan) []string { return []string{fmt.Sprint(len(p.Serving))} }),
		// returns the number of a service port, or 0.
		"numbers": a.ofPlans(func(p *ruleset.Plan) []string { return []string{fmt.Sprint(p.Number)} }),
		// returns the number of its affinity set.
		"affinity-sets": a.ofPlans(func(p *ruleset.Plan) []string {
			return []string{fmt.Sprint(p.ClientSet)}
		}),
	}
	for name, answer := range stateAnswers {
		all[name] = e.ask(answer)
	}
	for name, count := range counts {
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

// counts are counts since the step last ran, of each Table.
var counts = map[string]func(*table.Stats) int{
	// returns the number of rewrites since it last ran.
	"rewrites": func(s *table.Stats) int { return s.Rewrites },
	// returns the number of repairs since it last ran.
	"repairs": func(s *table.Stats) int { return sum(maps.Values(s.Repairs)) },
	// returns the number of transactions since it last ran.
	"transactions": func(s *table.Stats) int { return s.Transactions },
	// returns the number of refusals since it last ran.
	"refusals": func(s *table.Stats) int { return s.Refusals },
	// returns the number of conflicts since it last ran.
	"conflicts": func(s *table.Stats) int { return s.Conflicts },
	// returns the number of rows written since it last ran.
	"rows-written": func(s *table.Stats) int { return s.RowsWritten },
}

// stateAnswers are answers about the present state of each Table.
var stateAnswers = map[string]func(*table.Table, *table.Stats) string{
	// returns the service ports that are tried again only when they change, or
	// in a resync.
	"refused": func(_ *table.Table, s *table.Stats) (text string) {
		for _, p := range s.RefusedPorts {
			text += p.Name + "\n"
		}
		return text
	},
	// returns the service ports that wait for a frontend, and its owner.
	"waiting": func(_ *table.Table, s *table.Stats) (text string) {
		for _, p := range s.WaitingPorts {
			text += fmt.Sprintln(p.Name, "for", p.Frontend, "of", p.Owner)
		}
		return text
	},
	// returns the repairs by kind.
	"repair-kinds": func(_ *table.Table, s *table.Stats) string {
		return strings.NewReplacer("map[", "", "]", "", ":", " ").Replace(fmt.Sprint(s.Repairs))
	},
	// returns the service ports without local endpoints, by traffic policy.
	"no-local": func(_ *table.Table, s *table.Stats) string {
		return fmt.Sprint(s.NoLocalEndpoints.Internal, " ", s.NoLocalEndpoints.External)
	},
	// returns the numbers of Services, service ports and endpoints.
	"totals": func(_ *table.Table, s *table.Stats) string {
		return fmt.Sprintln(s.Services, s.ServicePorts, s.Endpoints)
	},
	// returns the number of contested frontends.
	"contested": func(_ *table.Table, s *table.Stats) string { return fmt.Sprint(s.Contested) },
	// returns the number of reduced Services.
	"reduced": func(_ *table.Table, s *table.Stats) string { return fmt.Sprint(s.Reduced) },
	// reports whether the kernel has all changes.
	"up-to-date": func(t *table.Table, _ *table.Stats) string { return fmt.Sprint(t.UpToDate()) },
	// reports whether everything was compared.
	"scrubbed": func(t *table.Table, _ *table.Stats) string { return fmt.Sprint(t.Scrubbed()) },
	// returns whether the scrubber rests.
	"rests": func(t *table.Table, _ *table.Stats) string {
		return fmt.Sprint(t.Rest() > 0 && t.Rest() <= 300*time.Millisecond)
	},
	// returns whether the next sync is due now or later.
	"next": func(t *table.Table, _ *table.Stats) string {
		switch wait, waits := t.Next(); {
		case !waits:
			return ""
		case wait > 0:
			return "later"
		}
		return "now"
	},
}

// lines returns the answer of a step: none, or lines.
func lines(all ...string) string {
	return cmp.Or(strings.TrimSpace(strings.Join(all, "\n")), "none") + "\n"
}

// take is a step that returns what was recorded since it last ran.
func (a *answers) take(from *[]string) func() string {
	return func() string {
		all := *from
		*from = nil
		return lines(all...)
	}
}

// since is a step that returns counts since it last ran, or since the process
// started.
func (a *answers) since(name string, count func() []int) func() string {
	return func() string {
		before, now := a.counted[name], count()
		a.counted[name] = now
		var all []string
		for i, n := range now {
			if before != nil {
				n -= before[i]
			}
			all = append(all, fmt.Sprint(n))
		}
		return lines(strings.Join(all, " "))
	}
}

// ask is a step that returns an answer of each Table.
func (e *engine) ask(f func(*table.Table, *table.Stats) string) func() string {
	return func() string {
		var all []string
		for _, t := range e.tables {
			s := t.Stats()
			all = append(all, f(t, &s))
		}
		return lines(all...)
	}
}

// showEvents returns the events since it last ran. With a reason, it returns
// only the objects of these events.
func (a *answers) showEvents(reason ...string) string {
	var all []string
	for _, e := range a.events {
		switch text := e.Namespace + "/" + e.Name; {
		case len(reason) == 0:
			all = append(all, fmt.Sprintf("%s %s: %s", e.Reason, text, e.Note))
		case e.Reason == reason[0]:
			all = append(all, text)
		}
	}
	a.events = nil
	return lines(all...)
}

// plansOf returns the plans that the kernel has, of a Service, of a namespace,
// or all.
func (a *answers) plansOf(name string) (all []*ruleset.Plan) {
	for _, key := range slices.Sorted(maps.Keys(a.plans)) {
		p := a.plans[key]
		if p != nil && (name == "" || p.Service.Name.String() == name || p.Service.Name.Namespace == name) {
			all = append(all, p)
		}
	}
	return all
}

// ofPlans is a step that returns lines about the plans of a Service, sorted,
// each once.
func (a *answers) ofPlans(f func(*ruleset.Plan) []string) func(...string) string {
	return func(of ...string) string {
		var all []string
		for _, p := range a.plansOf(strings.Join(of, "")) {
			all = append(all, f(p)...)
		}
		slices.Sort(all)
		return lines(slices.Compact(all)...)
	}
}

// served returns the numbers of frontends and of endpoints of Services in the
// kernel.
func (a *answers) served(names ...string) string {
	var all []string
	for _, name := range names {
		frontends, endpoints := 0, 0
		for _, p := range a.plansOf(name) {
			frontends, endpoints = frontends+len(p.Frontends), endpoints+len(p.Cluster)
		}
		all = append(all, fmt.Sprintf("%d/%d", frontends, endpoints))
	}
	return lines(strings.Join(all, " "))
}

// unused returns why new connections do not use endpoints of a Service, and how
// many.
func (e *engine) unused(name string) string {
	count := make(map[string]int)
	for _, p := range e.ports(name) {
		for _, u := range p.Endpoints {
			count[string(u.Cluster)]++
		}
	}
	delete(count, "")
	var all []string
	for _, why := range slices.Sorted(maps.Keys(count)) {
		all = append(all, fmt.Sprint(why, " ", count[why]))
	}
	return lines(all...)
}

// infrastructure returns those of some endpoints that must not be probed.
func (e *engine) infrastructure(endpoints ...netip.AddrPort) string {
	var all []string
	for _, at := range endpoints {
		if slices.ContainsFunc(e.tables, func(t *table.Table) bool { return t.IsInfrastructure(at) }) {
			all = append(all, at.String())
		}
	}
	return lines(all...)
}

// ports returns the service ports of a Service, or the one with a name, as
// operators see them.
func (e *engine) ports(name string) (all []table.PortView) {
	service, port, named := strings.Cut(name, ":")
	for _, t := range e.tables {
		view, _ := t.Service(parseName(service))
		for _, p := range view.Ports {
			if !named || p.Name == port {
				all = append(all, p)
			}
		}
	}
	return all
}

// frontends returns the wanted frontends of a Service, their state, and the
// numbers of endpoints.
func (e *engine) frontends(name string) string {
	var all []string
	for _, port := range e.ports(name) {
		for _, f := range port.Frontends {
			text := fmt.Sprintf("%s %s %d %s %d of %d endpoints", f.Kind, f.Address, f.Port, f.State, f.UsedEndpoints,
				f.AllEndpoints)
			if f.Owner != "" {
				text += " owner " + f.Owner
			}
			all = append(all, text)
		}
	}
	return lines(all...)
}

// service returns written, pending, reduced, or, for a port that is not written
// as it is wanted, waits PORT until the next sync tries it again, or refused
// PORT.
func (e *engine) service(name string) string {
	var all []string
	for _, t := range e.tables {
		view, ok := t.Service(parseName(name))
		if !ok {
			all = append(all, "unknown")
		}
		if view.Pending {
			all = append(all, "pending")
		}
		if view.HealthCheckOwner != "" {
			all = append(all, "health check of "+view.HealthCheckOwner)
		}
		for _, p := range view.Ports {
			switch {
			case p.Waits:
				all = append(all, "waits "+p.Name)
			case p.Refusal != "":
				all = append(all, "refused "+p.Name)
			}
		}
		all = slices.AppendSeq(all, maps.Values(view.Reductions))
	}
	return cmp.Or(strings.Join(all, "\n"), "written") + "\n"
}

// checkViews compares the plans in views of Services without a change that
// waits with the plans that the kernel has, but not the ids of session
// affinity.
func (e *engine) checkViews(t *table.Table) error {
	if e.config.Observer == nil {
		return nil
	}
	withoutIDs := func(p *ruleset.Plan) (plan ruleset.Plan) {
		if p == nil {
			return plan
		}
		plan = *p
		plan.ClientSet, plan.Cluster, plan.Local = 0, slices.Clone(p.Cluster), slices.Clone(p.Local)
		for _, targets := range [][]ruleset.Target{plan.Cluster, plan.Local} {
			for i := range targets {
				targets[i].ID, targets[i].Group = 0, 0
			}
		}
		plan.Ejected = nil // a pointer
		return plan
	}
	for name := range t.ServiceNames() {
		view, _ := t.Service(name)
		for _, p := range view.Ports {
			has := e.plans[fmt.Sprint(t.Family(), name.WithPort(p.Name), p.Protocol)]
			got, want := fmt.Sprintf("%+v", withoutIDs(p.Plan)), fmt.Sprintf("%+v", withoutIDs(has))
			if !view.Pending && got != want {
				return fmt.Errorf("view of %s:\ngot  %s\nwant %s", name.WithPort(p.Name), got, want)
			}
		}
	}
	return nil
}

// writes reports whether a transaction writes a service port as it is wanted.
func (e *engine) writes(port string) bool {
	return strings.HasPrefix(e.service(strings.Split(port, ":")[0]), "pending") &&
		slices.ContainsFunc(e.ports(port), func(p table.PortView) bool { return p.Refusal == "" })
}

// tagOf returns the tag of a service port.
func (e *engine) tagOf(port string) uint32 {
	for _, p := range e.ports(port) {
		return p.Tag
	}
	return 0
}

// rows returns the rows of a set in the kernel, sorted: rows service-classes.
func (e *engine) rows(name string) (string, error) {
	var all []string
	for _, t := range e.tables {
		expected, err := t.Expected(nil)
		if err != nil {
			return "", err
		}
		set, err := expected.Set(name)
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
			all = append(all, text)
		}
	}
	slices.Sort(all)
	return lines(all...), nil
}

// rowCount returns the numbers of rows of sets, as metrics show them, or of all
// sets together.
func (e *engine) rowCount(sets ...string) string {
	var all []string
	for _, t := range e.tables {
		if len(sets) == 0 {
			all = append(all, fmt.Sprint(sum(maps.Values(t.Stats().Rows))))
		}
		for _, set := range sets {
			all = append(all, fmt.Sprint(t.Stats().Rows[set]))
		}
	}
	return lines(strings.Join(all, " "))
}

// differences compares the table with the wanted one, as nftproxy doctor does.
func (e *engine) differences() (string, error) {
	var all []string
	for _, t := range e.tables {
		found, err := differences(t)
		if err != nil {
			return "", err
		}
		all = append(all, found...)
	}
	return lines(all...), nil
}

// listing writes the table as nft lists it to a file, in an order that does not
// depend on the order of writing (see without).
func (e *engine) listing(s *script.Script, file string, except ...string) error {
	var text string
	for _, f := range e.families {
		text += strings.Join(without(e.kernelListing(f), except...), "\n") + "\n"
	}
	return os.WriteFile(s.MkAbs(file), []byte(text), 0o600)
}

// reference writes a listing in the same form to a file, after nft has loaded a
// table into an empty namespace: reference table.nft want.
func (e *engine) reference(s *script.Script, from, to string, except ...string) error {
	all, err := loadedListing(e.families[0], s.ReadFile(from))
	if err != nil {
		return err
	}
	text := strings.Join(without(all, except...), "\n") + "\n"
	return os.WriteFile(s.MkAbs(to), []byte(text), 0o600)
}

func sum(all func(func(int) bool)) (n int) {
	for v := range all {
		n += v
	}
	return n
}
