package explain

import (
	"fmt"
	"io"
	"strings"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Print writes the result for people: first the answer, then what explains it,
// then the walk. Unless wide is set, it leaves out the rules that explain
// nothing and all but the first endpoints.
func (r *Result) Print(w io.Writer, wide bool) {
	p := printer{w, wide}
	p.question(r)
	fmt.Fprintf(p, "ANSWER  %s%s\n", r.Answer, r.code())
	PrintRemedy(p, r.Remedy)
	if len(r.Outcomes) > 1 {
		p.outcomes(r)
	}
	p.ways(r)
	p.others(r)
	p.unused(r)
	p.difference(r)
	for _, note := range r.Notes {
		fmt.Fprintf(p, "\nNOTE    %s.\n", note)
	}
	p.walk(r)
}

// PrintRemedy prints a remedy, unless it is "".
func PrintRemedy(w io.Writer, remedy string) {
	if remedy != "" {
		fmt.Fprintf(w, "REMEDY  %s\n", remedy)
	}
}

// maxListed is the number of outcomes that are listed unless the output is
// wide.
const maxListed = 10

type printer struct {
	io.Writer
	wide bool
}

func (p printer) question(r *Result) {
	fmt.Fprintf(p, "%s/%s from %s", r.Destination, r.Protocol, r.Source)
	if r.From != "" {
		fmt.Fprintf(p, " (%s)", r.From)
	}
	if r.ServicePort != "" {
		fmt.Fprintf(p, " → %s", r.ServicePort)
	}
	if r.Frontend != "" {
		fmt.Fprintf(p, " (%s)", r.Frontend)
	}
	fmt.Fprint(p, "\n\n")
}

const indent = "        " // as long as a label

// outcomes lists the outcomes with their probabilities and, where they differ,
// with their reasons.
func (p printer) outcomes(r *Result) {
	alike := r.alike()
	p.list(indent, len(r.Outcomes), func(i int) (name, text string) {
		o := &r.Outcomes[i]
		if text = o.Probability.RatString(); !alike {
			text += "  " + o.sourceAddress()
		}
		return o.target(), text
	})
}

// unused lists the endpoints that the packet cannot reach.
func (p printer) unused(r *Result) {
	p.list("\nUNUSED  ", len(r.Unused), func(i int) (name, text string) {
		u := &r.Unused[i]
		if text = u.Text; u.Node != "" {
			text += " (" + u.Node + ")"
		}
		return u.String(), text + ruleset.Reason{Code: u.Reason}.CodeText()
	})
}

// list prints n lines in two columns, the first one with a label.
func (p printer) list(label string, n int, line func(i int) (name, text string)) {
	width := 0
	for i := range n {
		name, _ := line(i)
		width = max(width, len(name))
	}
	for i := range n {
		if i == maxListed && !p.wide {
			fmt.Fprintf(p, "%sand %d more: -o wide lists all\n", indent, n-i)
			return
		}
		name, text := line(i)
		fmt.Fprintf(p, "%s%-*s  %s\n", label, width, name, text)
		label = indent
	}
}

// difference describes the difference between the kernel and the proxy.
func (p printer) difference(r *Result) {
	if d := r.Difference; d != nil {
		fmt.Fprintf(p, "\nKERNEL  differs from the table that the proxy wants, which has: %s\n        %s.\n", d.Desired,
			d.Meaning)
	}
}

// target returns the endpoint or the kind of the outcome.
func (o *Outcome) target() string {
	if o.Action == ToEndpoint {
		return o.Endpoint.String()
	}
	return string(o.Action)
}

func (p printer) walk(r *Result) {
	shown := func(s *Step) bool { return p.wide || s.explains() }
	PrintWalk(p, r.Walk, shown, func(s *Step) string { return s.Chain }, func(s *Step) {
		fmt.Fprintf(p, "    %s%s\n", p.mark(s), s.Rule)
		p.rows(s)
	})
}

// PrintWalk prints the steps of a walk that are shown, under the chain of each.
func PrintWalk[S any](w io.Writer, steps []S, shown func(S) bool, chainOf func(S) string, printStep func(S)) {
	fmt.Fprintln(w, "\nWALK")
	chain := ""
	for _, s := range steps {
		if !shown(s) {
			continue
		}
		if next := chainOf(s); next != chain {
			chain = next
			fmt.Fprintf(w, "  %s\n", chain)
		}
		printStep(s)
	}
	if chain == "" {
		fmt.Fprintln(w, "  no rule decides")
	}
}

// explains reports whether a rule is part of the explanation: it matches, and
// does more than to lead to the next chain.
func (s *Step) explains() bool {
	return s.Matched.Sign() > 0 && !strings.HasPrefix(s.Rule, "jump ") && !strings.HasPrefix(s.Rule, "goto ")
}

// mark returns the mark of a rule in wide output: - if it does not match, + if
// it does, and ? if it matches by chance.
func (p printer) mark(s *Step) string {
	switch {
	case !p.wide:
		return ""
	case s.Matched.Sign() == 0:
		return "- "
	case s.Matched.IsInt():
		return "+ "
	}
	return "? "
}

// rows lists the rows that a rule found: the row of a class, and the row that
// leads from the class to a chain. Several rows of one map are the endpoints of
// the answer.
func (p printer) rows(s *Step) {
	found, sets := []string(nil), make(map[string]bool)
	for _, l := range s.Lookups {
		switch {
		case l.Row != "":
			found = append(found, l.Row)
			sets[l.Set] = true
		case p.wide:
			found = append(found, "no row "+l.Key)
		}
	}
	if len(found) > len(sets) && !p.wide {
		fmt.Fprintf(p, "      %d rows\n", len(found))
		return
	}
	for _, row := range found {
		fmt.Fprintf(p, "      %s%s\n", strings.Repeat(" ", len(p.mark(s))), row)
	}
}
