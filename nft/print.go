package nft

import (
	"fmt"
	"io"
	"slices"
	"strings"
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
		fmt.Fprintf(&b, "\tcomment %s\n", quote(storedComment(t.Comment)))
	}
	if t.Owned {
		b.WriteString("\tflags owner\n")
	}
	for _, c := range t.Counters {
		fmt.Fprintf(&b, "\n\tcounter %s {\n\t}\n", c.Name)
	}
	for _, s := range t.Sets {
		b.WriteByte('\n')
		printSet(&b, s, bySet[s.Name])
	}
	for _, c := range t.Chains {
		b.WriteByte('\n')
		t.printChain(&b, c)
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func printSet(b *strings.Builder, s *Set, rows []Row) {
	fmt.Fprintf(b, "\t%s %s {\n", s.keyword(), s.Name)
	declaration := "type"
	if s.Key.hasTypeof() {
		declaration = "typeof"
	}
	fmt.Fprintf(b, "\t\t%s %s", declaration, s.Key)
	switch {
	case s.Verdicts:
		b.WriteString(" : verdict")
	case s.isMap():
		fmt.Fprintf(b, " : %s", s.Data)
	}
	b.WriteByte('\n')
	if s.Size != 0 {
		fmt.Fprintf(b, "\t\tsize %d\n", s.Size)
	}
	if flags := flagNames(namedFlag{s.Dynamic, "dynamic"}, namedFlag{s.Timeouts, "timeout"}); len(flags) > 0 {
		fmt.Fprintf(b, "\t\tflags %s\n", strings.Join(flags, ","))
	}
	if s.Counts {
		b.WriteString("\t\tcounter\n")
	}
	if c := s.storedComment(); c != "" {
		fmt.Fprintf(b, "\t\tcomment %s\n", quote(c))
	}
	printRows(b, rows)
	b.WriteString("\t}\n")
}

func printRows(b *strings.Builder, rows []Row) {
	if len(rows) == 0 {
		return
	}
	slices.SortFunc(rows, Row.Compare)
	b.WriteString("\t\telements = {\n")
	for i, r := range rows {
		b.WriteString("\t\t\t" + r.Text())
		if i < len(rows)-1 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	b.WriteString("\t\t}\n")
}

func (t *Table) printChain(b *strings.Builder, c *Chain) {
	fmt.Fprintf(b, "\tchain %s {\n", c.Name)
	if h := c.Hook; h != nil {
		fmt.Fprintf(b, "\t\ttype %s hook %s priority %d;\n", h.Type, h.Point, h.Priority)
	}
	for _, r := range c.Rules {
		fmt.Fprintf(b, "\t\t%s\n", r.Text(t.Family))
	}
	b.WriteString("\t}\n")
}

// quote puts a string into quotation marks, for which nft has no escape (see
// storedComment).
func quote(s string) string { return `"` + s + `"` }
