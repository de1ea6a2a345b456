package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var objects = regexp.MustCompile(`(?ms)^\t((?:set|map|chain) \S+) \{\n(.*?)^\t\}`)

// parseListing returns the lines of a table that nft listed. A row of a set or
// map is "map service-ips: ROW", any other line is "chain services { LINE".
// Rows and objects are sorted, other lines keep their order.
func parseListing(listing string) []string {
	var blocks []string
	for _, object := range objects.FindAllStringSubmatch(listing, -1) {
		definition, elements, _ := strings.Cut(object[2], "elements = {")
		lines := prefixed(object[1]+" { ", strings.Split(definition, "\n"))
		elements = strings.TrimRight(elements, "}\n\t ")
		rows := prefixed(object[1]+": ", strings.Split(elements, ",")) // no comment contains a comma
		slices.Sort(rows)
		blocks = append(blocks, strings.Join(append(lines, rows...), "\n"))
	}
	slices.Sort(blocks)
	return strings.Split(strings.Join(blocks, "\n"), "\n")
}

// prefixed trims lines and adds a prefix to those that are not blank.
func prefixed(prefix string, lines []string) (result []string) {
	for _, line := range lines {
		if line = strings.TrimSpace(line); line != "" {
			result = append(result, prefix+line)
		}
	}
	return result
}

// list returns the lines of a family's table on node1.
func (t *tour) list(ctx context.Context, family string) ([]string, error) {
	listing, err := t.cluster.run(ctx, "nft", "list", "table", family, "kube-proxy")
	return parseListing(listing), err
}

// affinityRow matches clients of Services with sessionAffinity. Packets add
// them, and a flush removes them for good.
var affinityRow = regexp.MustCompile(`^set clients-\d+: `)

// saveTables saves the tables of node1 for compareTables.
func (t *tour) saveTables(ctx context.Context, _ string, _ [][]string) error {
	ipv4, err := t.list(ctx, "ip")
	if err != nil {
		return err
	}
	ipv6, err := t.list(ctx, "ip6")
	t.tables = slices.DeleteFunc(append(ipv4, ipv6...), affinityRow.MatchString)
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
		err = fmt.Errorf("lines missing: %q, lines added: %q", without(saved, t.tables), without(t.tables, saved))
	}
	t.check(err, "The tables of both families are the same as before, row by row.")
	return nil
}

// without returns the lines that are not among others.
func without(lines, others []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return slices.Contains(others, line) })
}

// listTable lists the IPv4 table of node1 for findLines and showSets. It adds a
// client with session affinity, because a flush removed the others.
func (t *tour) listTable(ctx context.Context, _ string, _ [][]string) (err error) {
	c := call{from: "client", protocol: "tcp", want: []string{"cart-1", "cart-2"}}
	t.call(ctx, c, t.cluster.addresses("shop/cart", "ClusterIP", "tcp")[0])
	t.lines, err = t.list(ctx, "ip")
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
