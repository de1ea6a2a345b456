package flows

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/nftproxy/nftproxy/nft"
)

// Print writes the report for people: a table of the endpoints of each service
// port or, for a report of Top, a table of frontends. There are no further
// details.
func (r *Report) Print(w io.Writer, _ bool) {
	switch {
	case r.top:
		r.printTop(w)
	case len(r.Groups) == 0:
		fmt.Fprintln(w, "no connections")
	default:
		for i, g := range r.Groups {
			if i > 0 {
				fmt.Fprintln(w)
			}
			g.print(w)
		}
	}
	for _, note := range r.Notes {
		fmt.Fprintf(w, "\nNOTE  %s\n", note)
	}
}

func (r *Report) printTop(w io.Writer) {
	states := statesOf(r.Groups, func(g *Group) Counts { return g.Counts })
	t := newTable(w, append([]string{"FRONTEND", "SERVICE", "CONNECTIONS"}, states...))
	for _, g := range r.Groups {
		printRow(t, append([]string{g.frontend(0), cmp.Or(g.ServicePort, "-")}, g.numbers(states)...))
	}
	t.Flush()
	fmt.Fprintf(w, "\n%d of %d tracked connections are translated\n", r.Total, r.Tracked)
}

func (g *Group) print(w io.Writer) {
	g.printHeader(w)
	if g.Connections == 0 && len(g.Endpoints) == 0 {
		fmt.Fprintln(w, "no connections")
		return
	}
	fmt.Fprintln(w)
	states := statesOf(g.Endpoints, func(e Endpoint) Counts { return e.Counts })
	t := newTable(w, append([]string{"ENDPOINT", "CONNECTIONS"}, states...))
	for _, e := range g.Endpoints {
		row := append([]string{e.Address.String()}, e.numbers(states)...)
		switch {
		case e.Gone:
			row = append(row, "gone")
		case e.Unused:
			row = append(row, "not in use")
		}
		printRow(t, row)
	}
	printRow(t, append([]string{"total"}, g.numbers(states)...))
	t.Flush()
	if g.Skew > 0 {
		fmt.Fprintf(w, "skew %.2f (most connections of an endpoint in use / mean of its family)\n", g.Skew)
	}
	if g.Untranslated > 0 {
		fmt.Fprintf(w, "not translated to an endpoint: %d\n", g.Untranslated)
	}
}

func (g *Group) printHeader(w io.Writer) {
	if len(g.Frontends) == 1 {
		fmt.Fprintf(w, "%s → %s\n", g.frontend(0), cmp.Or(g.ServicePort, "-"))
		return
	}
	fmt.Fprintf(w, "%s\n", cmp.Or(g.ServicePort, "-"))
	for i := range g.Frontends {
		fmt.Fprintf(w, "  %s: %d connections\n", g.frontend(i), g.Frontends[i].Connections)
	}
}

// frontend returns a frontend in the form 10.96.0.10:80/tcp or NodePort
// 30080/tcp.
func (g *Group) frontend(i int) string {
	at := g.Frontends[i].Address
	if at.Addr().IsUnspecified() {
		return fmt.Sprintf("NodePort %d/%s of %s", at.Port(), g.Protocol, nft.FamilyOf(at.Addr()).Name())
	}
	return at.String() + "/" + g.Protocol
}

// lifecycle is the order of states in the life of a connection. Other states
// follow in alphabetical order.
var lifecycle = [...]string{
	"UNREPLIED", "REPLIED", "COOKIE_WAIT", "COOKIE_ECHOED", "SYN_SENT", "SYN_SENT2", "SYN_RECV", "ESTABLISHED",
	"OFFLOAD", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE",
}

func stateRank(state string) int {
	if i := slices.Index(lifecycle[:], state); i >= 0 {
		return i
	}
	return len(lifecycle)
}

// statesOf returns the names of all states.
func statesOf[T any](values []T, counts func(T) Counts) []string {
	all := make(map[string]bool)
	for _, v := range values {
		for state := range counts(v).States {
			all[state] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(stateRank(a), stateRank(b)), cmp.Compare(a, b))
	})
}

// numbers returns the number of connections, and those by state.
func (c *Counts) numbers(states []string) []string {
	texts := []string{fmt.Sprint(c.Connections)}
	for _, state := range states {
		if n := c.States[state]; n > 0 {
			texts = append(texts, fmt.Sprint(n))
		} else {
			texts = append(texts, "-")
		}
	}
	return texts
}

// newTable returns a writer that aligns columns, after their header. w is a
// buffer, which returns no error.
func newTable(w io.Writer, header []string) *tabwriter.Writer {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	printRow(t, header)
	return t
}

func printRow(w io.Writer, cells []string) { fmt.Fprintln(w, strings.Join(cells, "\t")) }
