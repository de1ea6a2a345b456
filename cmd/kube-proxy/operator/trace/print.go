package trace

import (
	"fmt"
	"io"
	"strings"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Print writes the packet for people: first the answer, then the walk. Unless
// wide is set, it leaves out rules that only lead to another chain, and rules
// of other tables that do not decide.
func (k *Packet) Print(w io.Writer, wide bool) {
	from := " (node)"
	if k.Interface != "" {
		from = " through " + k.Interface
	}
	fmt.Fprintf(w, "%s  %s/%s from %s%s", k.Time.Format("15:04:05.000"), k.Destination, k.Protocol, k.Source, from)
	if k.ServicePort != "" {
		fmt.Fprintf(w, " → %s", k.ServicePort)
	}
	fmt.Fprintf(w, "\n\nANSWER  %s\n", k.Answer)
	if k.Explain != "" {
		fmt.Fprintf(w, "EXPLAIN now: %s\n", k.Explain)
	}
	if k.Final != nil {
		fmt.Fprintf(w, "SENT    %s\n", k.Final)
	}
	k.printWalk(w, wide)
}

// String returns the packet as it left the chains.
func (f *Final) String() string {
	if f.Interface == "" {
		return fmt.Sprintf("%s → %s to this node", f.Source, f.Destination)
	}
	return fmt.Sprintf("%s → %s through %s", f.Source, f.Destination, f.Interface)
}

func (k *Packet) printWalk(w io.Writer, wide bool) {
	fmt.Fprintln(w, "\nWALK")
	table, chain := "", ""
	for _, s := range k.Steps {
		if !wide && !s.decides() {
			continue
		}
		if s.Table != table || s.Chain != chain {
			table, chain = s.Table, s.Chain
			fmt.Fprintf(w, "  %s\n", s.place())
		}
		fmt.Fprintf(w, "    %s\n", s)
	}
	if chain == "" {
		fmt.Fprintln(w, "  no rule decides")
	}
}

// isProxy reports whether the step is of the proxy's table.
func (s Step) isProxy() bool {
	_, name, _ := strings.Cut(s.Table, " ")
	return name == ruleset.TableName
}

// place returns the chain, with its table unless that is the proxy's.
func (s Step) place() string {
	if s.isProxy() {
		return s.Chain
	}
	return fmt.Sprintf("table %s, chain %s", s.Table, s.Chain)
}

// decides reports whether the step does more than to lead to the next one.
func (s Step) decides() bool {
	verdict, _, _ := strings.Cut(s.Verdict, " ")
	switch {
	case s.Handle == 0:
		return verdict != "accept"
	case s.isProxy():
		return !strings.HasPrefix(s.Rule, "jump ")
	}
	return verdict != "jump" && verdict != "goto" && verdict != "continue" && verdict != "return"
}

// String returns the rule, with its verdict unless its text ends with that.
func (s Step) String() string {
	switch {
	case s.Handle == 0:
		return "policy " + s.Verdict
	case s.isProxy() && !strings.Contains(s.Rule, " vmap @"):
		return s.Rule
	case s.isProxy():
		return s.Rule + " → " + s.Verdict
	}
	text := fmt.Sprintf("%s (handle %d)", s.Rule, s.Handle)
	if strings.HasSuffix(s.Rule, s.Verdict) || strings.Contains(s.Rule, "reject") || s.Verdict == "continue" {
		return text
	}
	return text + " → " + s.Verdict
}
