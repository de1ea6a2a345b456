package nft

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/nft/notation"
)

// Fprint writes the table with these rows as a file that `nft -f` loads. Sets
// and chains keep the order of the table; rows are sorted by key.
func (t *Table) Fprint(w io.Writer, rows []Row) error {
	bySet := make(map[string][]Row, len(t.Sets))
	for _, r := range rows {
		bySet[r.Set.Name] = append(bySet[r.Set.Name], r)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s {\n", t)
	if t.Comment != "" {
		fmt.Fprintf(&b, "\tcomment %s\n", notation.Quote(notation.Comment(t.Comment)))
	}
	if t.Owned {
		b.WriteString("\tflags owner\n")
	}
	for _, c := range t.Counters {
		printBlock(&b, "counter "+c.Name, nil)
	}
	for _, c := range t.CtTimeouts {
		printBlock(&b, "ct timeout "+c.Name, c.lines(t.Family))
	}
	for _, s := range t.Sets {
		keyword := "set "
		if s.isMap() {
			keyword = "map "
		}
		printBlock(&b, keyword+s.Name, s.lines(bySet[s.Name]))
	}
	for _, c := range t.Chains {
		printBlock(&b, "chain "+c.Name, c.lines(t.Family))
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func printBlock(b *strings.Builder, head string, lines []string) {
	b.WriteString("\n\t" + head + " {\n")
	for _, line := range lines {
		b.WriteString("\t\t" + line + "\n")
	}
	b.WriteString("\t}\n")
}

func (s *Set) lines(rows []Row) []string {
	declaration := "type " + s.Key.String()
	switch {
	case s.Verdicts:
		declaration += " : verdict"
	case s.isMap():
		declaration += " : " + s.Data.String()
	}
	lines := []string{declaration}
	if s.Size != 0 {
		lines = append(lines, fmt.Sprintf("size %d", s.Size))
	}
	if s.Dynamic {
		lines = append(lines, "flags dynamic,timeout")
	}
	if s.Counts {
		lines = append(lines, "counter")
	}
	if c := notation.Comment(s.Comment); c != "" {
		lines = append(lines, "comment "+notation.Quote(c))
	}
	if len(rows) > 0 {
		slices.SortFunc(rows, Row.Compare)
		elements := make([]string, len(rows))
		for i, r := range rows {
			elements[i] = "\t" + r.Text()
		}
		lines = append(lines, "elements = {", strings.Join(elements, ",\n\t\t"), "}")
	}
	return lines
}

func (c *Chain) lines(f Family) (lines []string) {
	if h := c.Hook; h != nil {
		line := fmt.Sprintf("type %s hook %s priority %d;", h.Type, h.Point, h.Priority)
		if h.Drop {
			line += " policy drop;"
		}
		lines = append(lines, line)
	}
	for _, r := range c.Rules {
		lines = append(lines, r.Text(f))
	}
	return lines
}
