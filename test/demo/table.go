package main

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/test/lab/listing"
)

// linesOf returns the lines of a table. A row of a set or map is "map
// service-ips: ROW", any other line is "chain services { LINE". Rows and
// objects are sorted, other lines keep their order.
func linesOf(table []listing.Line) (texts []string) {
	table = slices.DeleteFunc(table, func(l listing.Line) bool {
		return l.Object == "" || l.Text == "" || strings.HasPrefix(l.Object, "counter")
	})
	row := func(l listing.Line) string {
		if l.Element {
			return l.Text
		}
		return ""
	}
	slices.SortStableFunc(table, func(a, b listing.Line) int {
		return cmp.Or(strings.Compare(a.Family, b.Family), strings.Compare(a.Object, b.Object),
			strings.Compare(row(a), row(b)))
	})
	for _, l := range table {
		separator := " { "
		if l.Element {
			separator = ": "
		}
		texts = append(texts, l.Object+separator+l.Text)
	}
	return texts
}

// affinityRow matches clients of Services with sessionAffinity. Packets add
// them, and a flush removes them for good.
var affinityRow = regexp.MustCompile(`^set clients-\d+: `)

// saveTables saves the tables of node1 for compareTables.
func (t *tour) saveTables(ctx context.Context, _ string, _ [][]string) error {
	table, err := listing.List(ctx, t.cluster.lab.Node1.Namespace)
	t.tables = slices.DeleteFunc(linesOf(table), affinityRow.MatchString)
	return err
}

// compareTables checks that the tables of node1 are as saveTables saved them.
func (t *tour) compareTables(ctx context.Context, _ string, _ [][]string) error {
	saved := t.tables
	if err := t.saveTables(ctx, "", nil); err != nil {
		return err
	}
	var err error
	if !slices.Equal(saved, t.tables) {
		slices.Sort(saved)
		slices.Sort(t.tables)
		err = fmt.Errorf("the tables differ:\n%s", listing.Difference(saved, t.tables))
	}
	t.check(err, "The tables of both families are the same as before, row by row.")
	return nil
}

// listTable lists the IPv4 table of node1 for findLines and showSets. It adds a
// client with session affinity, because a flush removed the others.
func (t *tour) listTable(ctx context.Context, _ string, _ [][]string) (err error) {
	c := call{from: "client", protocol: "tcp", want: []string{"cart-1", "cart-2"}}
	t.call(ctx, c, t.cluster.addresses("shop/cart", "ClusterIP", "tcp")[0])
	table, err := listing.List(ctx, t.cluster.lab.Node1.Namespace)
	t.lines = linesOf(slices.DeleteFunc(table, func(l listing.Line) bool { return l.Family != "ip" }))
	return err
}

// matching returns the lines that match a regular expression.
func matching(lines []string, expression string) []string {
	match := regexp.MustCompile(expression).MatchString
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return !match(line) })
}

// findLines shows the lines of the table with a prefix, and checks that they
// are as many as the rows and end like them.
func (t *tour) findLines(_ context.Context, prefix string, rows [][]string) error {
	found := matching(t.lines, "^"+regexp.QuoteMeta(prefix))
	var want []string
	var err error
	for _, row := range rows {
		want = append(want, row[0])
		if len(found) != len(rows) || len(matching(found, regexp.QuoteMeta(row[0])+"$")) == 0 {
			err = fmt.Errorf("%s: got %q, want lines that end in %q", prefix, found, want)
		}
	}
	t.check(err, "%s", strings.Join(found, "\n      "))
	return nil
}

// showSets checks that sets and maps have rows, and shows one, if possible of
// shop/web. Its rows are the name of a set or map and its meaning.
func (t *tour) showSets(_ context.Context, _ string, rows [][]string) error {
	const ofWeb = `shop/web|10\.96\.0\.80|tcp \. 30080 |10\.244\.1\.11 `
	table := [][]any{{"RESULT", "SET OR MAP", "ROWS", "A ROW IS, FOR EXAMPLE"}}
	for _, row := range rows {
		found := matching(t.lines, "^"+row[0]+`\d*: `)
		var err error
		if len(found) == 0 {
			err = fmt.Errorf("%s has no rows", row[0])
		}
		_, example, _ := strings.Cut(slices.Concat(matching(found, ofWeb), found, []string{""})[0], ": ")
		table = append(table, []any{t.verdict(err), row[0], len(found), row[1]}, []any{"", "", "", "  " + example})
	}
	t.table(table)
	return nil
}
