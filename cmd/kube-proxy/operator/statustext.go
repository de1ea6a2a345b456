package operator

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/doctor"
	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/checker"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// print writes the status for people, with the details and remedies of doctor's
// warnings if wide is set.
func (s *status) print(w io.Writer, wide bool) {
	t := newTable(w)
	fmt.Fprintf(t, "STATE\t%s\n", s.State)
	for _, p := range s.Problems {
		fmt.Fprintf(t, "\t%s\n", p)
	}
	if p := s.Proxy; p != nil {
		fmt.Fprintf(t, "PROXY\tnftproxy %s, mode %s, process %d\nNODE\t%s\nSINCE\t%s (%s)\n", p.Version, p.Mode, p.PID,
			p.Node, p.Started.Format(time.RFC3339), age(p.Time, p.Started))
	}
	if s.Conntrack != nil {
		fmt.Fprintf(t, "CONNTRACK\t%s\n", conntrackText(s.Conntrack))
	}
	if p := s.Proxy; p != nil {
		fmt.Fprintf(t, "RETRY\t%s\n", retryText(p))
		if p.HealthChecks != (checker.Summary{}) {
			fmt.Fprintf(t, "HEALTH CHECKS\t%s\n", checksText(&p.HealthChecks))
		}
		if p.InvalidObjects > 0 {
			fmt.Fprintf(t, "INVALID\t%d objects with invalid fields, see their events\n", p.InvalidObjects)
		}
		printManifests(t, p)
		printList(t, "SYSCTLS THAT ARE NOT SET", len(p.UnsetSysctls), p.UnsetSysctls)
		printSyncs(t, p)
		printNumbers(t, p.Families, wide)
		printRefused(t, p.Families)
		printEjected(t, p)
	}
	printTables(t, s.Tables)
	title := "WARNINGS, see " + Name + " doctor"
	if wide && len(s.Warnings) > 0 {
		fmt.Fprintf(t, "\n%s\n", title)
		t.Flush()
		(&doctor.Report{Findings: s.Warnings}).Print(w, true)
		return
	}
	var warnings []string
	for _, f := range s.Warnings {
		if s.Proxy == nil || f.Result != doctor.Fail { // otherwise STATE has it
			warnings = append(warnings, f.Check+": "+f.Reason)
		}
	}
	printList(t, title, len(warnings), warnings)
	t.Flush()
}

// printManifests writes the state of the folder of manifests.
func printManifests(w io.Writer, p *answer.ProxyStatus) {
	m := p.Manifests
	if m == nil {
		return
	}
	fmt.Fprintf(w, "MANIFESTS\t%s: files %d, objects %d, problems %d\n", m.Dir, m.Files, m.Objects, m.ProblemCount)
	var problems []string
	for _, problem := range m.Problems {
		text := problem.Text + "; for " + age(p.Time, problem.Since)
		switch {
		case problem.Kept && problem.File == "":
			text += ", the last objects are served"
		case problem.Kept:
			text += ", the last valid version is served"
		}
		problems = append(problems, text)
	}
	if more := m.ProblemCount - len(problems); more > 0 {
		problems = append(problems, fmt.Sprintf("and %d more; %s check %s lists them", more, Name, m.Dir))
	}
	printList(w, "PROBLEMS OF MANIFESTS", m.ProblemCount, problems)
}

// retryText returns when new connections without an answer get another
// endpoint.
func retryText(p *answer.ProxyStatus) string {
	switch {
	case p.NoTimeouts:
		return "never: the kernel has no ct timeout"
	case p.RetryAfterSeconds == 0:
		return "never"
	}
	return fmt.Sprintf("connections without an answer get another endpoint after %d s", p.RetryAfterSeconds)
}

// checksText describes the health checks of endpoints.
func checksText(c *checker.Summary) string {
	text := fmt.Sprintf("%d endpoints are checked", c.Endpoints)
	if c.Slowed > 0 {
		text += fmt.Sprintf("; the limits make the periods of %d longer, up to %.0f s", c.Slowed, c.PeriodSeconds)
	}
	if c.Unsent > 0 {
		text += fmt.Sprintf("; checks of %d cannot be sent", c.Unsent)
	}
	return text
}

// printSyncs writes the last sync of each family that wrote something, and what
// it wrote, or the last sync if it failed.
func printSyncs(w io.Writer, p *answer.ProxyStatus) {
	fmt.Fprintf(w, "\nLAST WRITE\n")
	for i := range p.Families {
		f := &p.Families[i]
		if f.LastSync != nil && f.LastSync.Error != "" {
			fmt.Fprintf(w, "  %s\t%s, failed: %s\n", f.Family.Name(), syncText(p.Time, f.LastSync), f.LastSync.Error)
		}
		if f.LastWrite == nil {
			fmt.Fprintf(w, "  %s\tnone\n", f.Family.Name())
			continue
		}
		fmt.Fprintf(w, "  %s\t%s, rows: %d\n", f.Family.Name(), syncText(p.Time, f.LastWrite), f.LastWrite.Rows)
		for i := range f.LastChanges {
			fmt.Fprintf(w, "\t  %s: %s\n", f.LastChanges[i].Subject(), f.LastChanges[i].Text())
		}
		if f.MoreChanges > 0 {
			fmt.Fprintf(w, "\t  and %d more; %s history lists them\n", f.MoreChanges, Name)
		}
	}
}

// syncText describes a sync.
func syncText(now time.Time, s *proxier.SyncStatus) string {
	return fmt.Sprintf("%s ago, took %s, cause: %s", age(now, s.Ended), took(s.Seconds), s.Cause)
}

// printNumbers writes the numbers of all families side by side, with the
// numbers of rows of each set if wide is set.
func printNumbers(w io.Writer, families []proxier.FamilyStatus, wide bool) {
	row := func(name string, value func(*proxier.FamilyStatus) any) {
		fmt.Fprint(w, name)
		for i := range families {
			fmt.Fprintf(w, "\t%v", value(&families[i]))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
	row("", func(f *proxier.FamilyStatus) any { return strings.ToUpper(f.Family.Name()) })
	row("SERVICES", func(f *proxier.FamilyStatus) any { return f.Services })
	row("SERVICE PORTS", func(f *proxier.FamilyStatus) any { return f.ServicePorts })
	row("  cannot be updated", func(f *proxier.FamilyStatus) any { return f.Refused })
	row("ENDPOINTS", func(f *proxier.FamilyStatus) any { return f.Endpoints })
	row("CONTESTED FRONTENDS", func(f *proxier.FamilyStatus) any { return f.Contested })
	row("REWRITES", func(f *proxier.FamilyStatus) any { return f.Rewrites })
	row("REPAIRS", func(f *proxier.FamilyStatus) any { return sum(f.Repairs) })
	for _, kind := range keys(families, func(f *proxier.FamilyStatus) map[keep.DamageKind]int { return f.Repairs }) {
		row("  "+string(kind), func(f *proxier.FamilyStatus) any { return f.Repairs[kind] })
	}
	row("ROWS", func(f *proxier.FamilyStatus) any { return sum(f.Rows) })
	if !wide {
		return
	}
	for _, set := range keys(families, func(f *proxier.FamilyStatus) map[string]int { return f.Rows }) {
		row("  "+set, func(f *proxier.FamilyStatus) any { return f.Rows[set] })
	}
}

func sum[K comparable](counts map[K]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// keys returns the keys of all families that do not have the value 0 in each.
func keys[K cmp.Ordered](families []proxier.FamilyStatus, counts func(*proxier.FamilyStatus) map[K]int) []K {
	all := make(map[K]struct{})
	for i := range families {
		for key, n := range counts(&families[i]) {
			if n != 0 {
				all[key] = struct{}{}
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// printRefused lists the service ports that cannot be updated, or are not
// served on one of their frontends, the Services of which a part is not served,
// and the namespaces whose changes wait.
func printRefused(w io.Writer, families []proxier.FamilyStatus) {
	for i := range families {
		f := &families[i]
		var refused, waiting, reduced, late []string
		for _, r := range f.RefusedPorts {
			refused = append(refused, r.Name+": "+r.Reason)
		}
		for _, c := range f.WaitingPorts {
			waiting = append(waiting, c.Name+" gets no traffic on "+c.Frontend+": it belongs to "+c.Owner)
		}
		for _, r := range f.ReducedServices {
			reduced = append(reduced, r.String()+" "+r.How)
		}
		for _, n := range f.WaitingNamespaces {
			late = append(late, fmt.Sprintf("%s: %d service ports, for %s", n.Namespace, n.ServicePorts,
				time.Since(n.Since).Round(time.Millisecond)))
		}
		family := strings.ToUpper(f.Family.Name())
		printList(w, family+" SERVICE PORTS THAT CANNOT BE UPDATED", f.Refused, refused)
		printList(w, family+" FRONTENDS THAT SEVERAL SERVICES CLAIM", f.Contested, waiting)
		printList(w, family+" SERVICES THAT EXCEED A BUDGET", f.Reduced, reduced)
		printList(w, family+" NAMESPACES WHOSE CHANGES WAIT", f.Waiting, late)
	}
}

// printEjected lists the endpoints that are ejected, and the service ports of
// which none is although endpoints do not answer.
func printEjected(w io.Writer, p *answer.ProxyStatus) {
	for i := range p.Families {
		f := &p.Families[i]
		var ejected []string
		for _, e := range f.Ejections {
			ejected = append(ejected, fmt.Sprintf("%s %s: %s", e.Name, e.Endpoint, e.Ejection))
		}
		if more := f.Ejected - len(ejected); more > 0 {
			ejected = append(ejected, fmt.Sprintf("and %d more", more))
		}
		family := strings.ToUpper(f.Family.Name())
		printList(w, family+" ENDPOINTS THAT ARE EJECTED", f.Ejected, ejected)
		printList(w, family+" SERVICE PORTS WITHOUT EJECTIONS: MORE THAN HALF OF THE ENDPOINTS DO NOT ANSWER",
			len(f.AllUsed), f.AllUsed)
		printList(w, family+" SERVICE PORTS WITHOUT A HEALTHY ENDPOINT: THE LAST ONES STAY IN USE", len(f.NoneHealthy),
			f.NoneHealthy)
	}
	printList(w, "SERVICE PORTS WITHOUT EJECTIONS: NO ENDPOINT ANSWERS PROBES OF THIS NODE", len(p.Blind), p.Blind)
}

// printList prints n objects. The status has none of them if they are too many.
func printList(w io.Writer, title string, n int, lines []string) {
	switch {
	case n == 0:
		return
	case len(lines) == 0:
		lines = []string{fmt.Sprintf("too many to list; %s services lists them", Name)}
	}
	fmt.Fprintf(w, "\n%s\n  %s\n", title, strings.Join(lines, "\n  "))
}

// printTables lists the tables in the kernel.
func printTables(w io.Writer, tables []kernelTable) {
	for _, t := range tables {
		fmt.Fprintf(w, "\nTABLE  %s\t%s\n", t.Name, t.State)
		for _, set := range slices.Sorted(maps.Keys(t.Rows)) {
			fmt.Fprintf(w, "  %s\t%d\n", set, t.Rows[set])
		}
	}
}

func conntrackText(u *conntrack.Usage) string {
	if u.Max == 0 {
		return fmt.Sprintf("%d connections, without a limit", u.Entries)
	}
	return fmt.Sprintf("%d of %d connections (%.0f %%)", u.Entries, u.Max, 100*u.Full())
}

// age returns the time from then to now, rounded.
func age(now, then time.Time) string {
	d := now.Sub(then)
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}
