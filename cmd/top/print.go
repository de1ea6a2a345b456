package top

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"
)

// Layout is how a table is printed.
type Layout struct {
	Nodes bool // adds the column NODE
	Wide  bool // adds the columns OPENING and CLOSING
	// Width and Height are those of the terminal, 0 without a limit.
	Width, Height int
}

// Print writes a snapshot as a table, with the ages of changes at its time.
func (l Layout) Print(w io.Writer, s *Snapshot) {
	names, cells := l.rows(s)
	lines := l.align(names, cells)
	if l.Width > 0 { // the names give way
		longest, name := 0, 0
		for i, line := range lines {
			longest, name = max(longest, utf8.RuneCountInString(line)), max(name, utf8.RuneCountInString(names[i]))
		}
		if most := max(name-(longest-l.Width), minName); longest > l.Width && most < name {
			for i := range names {
				names[i] = shortened(names[i], most)
			}
			lines = l.align(names, cells)
		}
	}
	lines = append([]string{s.Time.Format(time.TimeOnly) + "  " + s.Summary()}, lines...)
	if hidden := s.Selected - len(s.ServicePorts); hidden > 0 && !l.Nodes {
		lines = append(lines, fmt.Sprintf("%d more service ports", hidden))
	}
	if s.RefusalsUnknown != "" {
		lines = append(lines, "REFUSED/S is unknown: "+s.RefusalsUnknown)
	}
	if l.Height > 0 && len(lines) > l.Height {
		lines = append(lines[:l.Height-1], fmt.Sprintf("… %d more lines", len(lines)-l.Height+1))
	}
	for _, line := range lines {
		if runes := []rune(line); l.Width > 0 && len(runes) > l.Width {
			line = string(runes[:l.Width])
		}
		fmt.Fprintln(w, line)
	}
}

// minName is the number of characters that the names keep in a narrow terminal.
const minName = 16

// shortened returns the end of a name, which distinguishes it more than the
// beginning. It keeps spaces at the beginning.
func shortened(name string, most int) string {
	runes := []rune(name)
	if len(runes) <= most {
		return name
	}
	rest := strings.TrimLeft(name, " ")
	indent := len(name) - len(rest)
	return name[:indent] + "…" + string(runes[len(runes)-most+indent+1:])
}

// rows returns the first column, and the others with tabs between them.
func (l Layout) rows(s *Snapshot) (names, cells []string) {
	node := func(name string) string {
		if !l.Nodes {
			return ""
		}
		return name + "\t"
	}
	add := func(name, cell string) { names, cells = append(names, name), append(cells, cell) }
	add("SERVICE PORT", node("NODE")+"CONNECTIONS\tOPEN\t"+l.wide("OPENING\tCLOSING\t")+
		"UNANSWERED\tNEW/S\tREPLIES/S\t"+s.refused("REFUSED/S")+"CHANGED\tEJECTED")
	for i := range s.ServicePorts {
		p := &s.ServicePorts[i]
		ejected := "-"
		if p.Ejected > 0 {
			ejected = fmt.Sprint(p.Ejected)
		}
		add(p.Name, node(p.Node)+l.cells(s, &p.Counts)+ejected)
		for _, e := range p.Endpoints {
			if ejected = "-"; e.Ejected > 0 {
				ejected = "yes"
			} else if e.Unused != "" {
				ejected += "\t" + e.Unused
			}
			add("  "+e.Address.String(), node(p.Node)+l.cells(s, &e.Counts)+ejected)
		}
	}
	return names, cells
}

// cells returns the columns of numbers.
func (l Layout) cells(s *Snapshot, c *Counts) string {
	changed := "-"
	if !c.Changed.IsZero() {
		changed = age(s.Time.Sub(c.Changed)) + " ago"
	}
	return fmt.Sprintf("%d\t%d\t%s%d\t%.1f\t%.1f\t%s%s\t", c.Connections, c.Open,
		l.wide(fmt.Sprintf("%d\t%d\t", c.Opening, c.Closing)), c.Unanswered, c.New, c.Replies,
		s.refused(fmt.Sprintf("%.1f", c.Refused)), changed)
}

// wide returns the cells of columns that only a wide table has.
func (l Layout) wide(cells string) string {
	if l.Wide {
		return cells
	}
	return ""
}

// refused returns the cell of a column that is there only if a connection was
// refused.
func (s *Snapshot) refused(cell string) string {
	if s.Total.Refused == 0 {
		return ""
	}
	return cell + "\t"
}

// age returns a duration in its largest unit.
func age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func (l Layout) align(names, cells []string) []string {
	var b bytes.Buffer
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for i := range names {
		fmt.Fprintf(t, "%s\t%s\n", names[i], cells[i])
	}
	t.Flush()
	return strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
}
