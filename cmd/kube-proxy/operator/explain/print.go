package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Print writes the result for people: the answer, and what explains it. Unless
// wide is set, it leaves out the walk and all but the first endpoints.
func (r *Result) Print(w io.Writer, wide bool) {
	p := printer{w, wide}
	p.question(r)
	fmt.Fprintf(p, "ANSWER  %s%s\n", r.Answer, r.code())
	PrintRemedy(p, r.Remedy)
	if len(r.Outcomes) > 1 {
		p.outcomes(r)
	}
	p.unused(r)
	p.ways(r)
	p.others(r)
	p.difference(r)
	for _, note := range r.Notes {
		fmt.Fprintf(p, "\nNOTE    %s.\n", note)
	}
	if wide {
		p.walk(r)
	}
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
		if at := slices.DeleteFunc([]string{u.Pod, u.Node}, func(s string) bool { return s == "" }); len(at) > 0 {
			text = " (" + strings.Join(at, " on ") + ")"
		}
		text = u.Text + text
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

// walk lists the rules that the packet reached, each with a mark: - if it does
// not match, + if it does, and ? if it matches by chance.
func (p printer) walk(r *Result) {
	all := func(*Step) bool { return true }
	PrintWalk(p, r.Walk, all, func(s *Step) string { return s.Chain }, func(s *Step) {
		mark := "?"
		if s.Matched.IsInt() {
			mark = []string{"-", "+"}[s.Matched.Sign()]
		}
		fmt.Fprintf(p, "    %s %s\n", mark, s.Rule)
		for _, l := range s.Lookups {
			fmt.Fprintf(p, "        %s\n", cmp.Or(l.Row, "no row "+l.Key))
		}
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
