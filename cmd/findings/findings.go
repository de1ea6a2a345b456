// Package findings is the report of `nftproxy doctor`. The command and the
// plugin of kubectl print it. The package performs no I/O but to print.
package findings

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is the result of all checks of a node, or of several.
type Report struct {
	Version  string    `json:"version"`
	Kernel   string    `json:"kernel"`
	Node     string    `json:"node"` // the host name
	Time     time.Time `json:"time"`
	Findings []Finding `json:"findings"`
}

// Finding is the result of a check.
type Finding struct {
	// Check is the name of the check.
	Check  string `json:"check"`
	Result Result `json:"result"`
	// Reason is why the check has the result.
	Reason string `json:"reason"`
	// Details are the objects that the reason is about.
	Details []string `json:"details,omitempty"`
	// Remedy is what to do. It is empty if the result is OK or Skipped.
	Remedy string `json:"remedy,omitempty"`
	// See is the section of the documentation.
	See string `json:"see"`
	// Seconds is the duration of the check.
	Seconds float64 `json:"seconds"`

	nodes []string // of a merged report
}

// Result is the result of a check.
type Result string

// Results.
const (
	Skipped Result = "skipped" // it cannot be known
	OK      Result = "ok"
	Info    Result = "info" // it can matter, but does not require action
	Warn    Result = "warn" // some traffic can fail, or is not restricted
	Fail    Result = "fail" // Services do not work
)

// With returns the finding with details.
func (f Finding) With(details ...string) Finding {
	f.Details = details
	return f
}

// Bad reports whether the check warns or fails.
func (f Finding) Bad() bool { return f.Result == Warn || f.Result == Fail }

// Bad reports whether a check warns or fails.
func (r *Report) Bad() bool { return slices.ContainsFunc(r.Findings, Finding.Bad) }

// Merge returns one report of several nodes: a finding that several nodes have
// is in it once, in the order of the checks. A detail that not all of them have
// begins with the name of the node.
func Merge(nodes map[string]*Report) *Report {
	merged := &Report{}
	byNode := make(map[string]map[string][]string) // the details of a finding
	names := slices.Sorted(maps.Keys(nodes))
	var checks []string
	for _, node := range names {
		for _, f := range nodes[node].Findings {
			if !slices.Contains(checks, f.Check) {
				checks = append(checks, f.Check)
			}
			key := f.key()
			if byNode[key] == nil {
				byNode[key] = make(map[string][]string)
				merged.Findings = append(merged.Findings, f)
			}
			byNode[key][node] = f.Details
		}
	}
	for i := range merged.Findings {
		f := &merged.Findings[i]
		details := byNode[f.key()]
		f.nodes, f.Details = slices.Sorted(maps.Keys(details)), nil
		for _, node := range f.nodes {
			for _, detail := range details[node] {
				lacks := func(o string) bool { return !slices.Contains(details[o], detail) }
				if slices.ContainsFunc(f.nodes, lacks) {
					detail = node + ": " + detail
				}
				if !slices.Contains(f.Details, detail) {
					f.Details = append(f.Details, detail)
				}
			}
		}
	}
	slices.SortStableFunc(merged.Findings, func(a, b Finding) int {
		return cmp.Compare(slices.Index(checks, a.Check), slices.Index(checks, b.Check))
	})
	return merged
}

// key identifies equal findings of nodes.
func (f *Finding) key() string {
	return fmt.Sprintf("%q", []string{f.Check, string(f.Result), f.Reason, f.Remedy})
}

// Print writes the report for people. Unless all is set, it leaves out the
// checks without a finding.
func (r *Report) Print(w io.Writer, all bool) {
	width, hidden := 0, make(map[string]bool)
	for _, f := range r.Findings {
		width = max(width, len(f.Check))
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		if !all && f.Result == OK {
			hidden[f.Check] = true
			continue
		}
		f.print(w, width)
	}
	if len(hidden) > 0 {
		fmt.Fprintf(w, "%-7s  %d checks: -o wide lists them\n", OK, len(hidden))
	}
}

func (f *Finding) print(w io.Writer, width int) {
	indent := strings.Repeat(" ", len(Skipped)+2+width+2)
	fmt.Fprintf(w, "%-7s  %-*s  %s\n", f.Result, width, f.Check, f.Reason)
	if f.nodes != nil {
		fmt.Fprintf(w, "%snodes: %s\n", indent, strings.Join(f.nodes, ", "))
	}
	for _, line := range f.Details {
		fmt.Fprintf(w, "%s- %s\n", indent, line)
	}
	if f.Remedy != "" {
		fmt.Fprintf(w, "%sremedy: %s\n", indent, f.Remedy)
	}
	if f.Bad() {
		fmt.Fprintf(w, "%ssee %s\n", indent, f.See)
	}
}
