package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// tableRow is a row of a table that nodes printed.
type tableRow struct {
	cells, nodes []string
}

// printTables prints the tables of all nodes as one, with the column NODE after
// the first one, and then what nodes printed instead of a table. Without times
// in the first column, rows that are equal are one. It returns false if a node
// printed a table with another header.
func printTables(stdout io.Writer, first string, pods []pod, answers []answer) bool {
	var rows []tableRow
	var head []string
	var others []tableRow // texts
	for i := range answers {
		lines := strings.Split(strings.TrimSuffix(string(answers[i].stdout.data), "\n"), "\n")
		switch columns := columnsOf(lines[0]); {
		case answers[i].problem != "" || lines[0] == "":
			others = addRow(others, []string{answers[i].failure("a table")}, pods[i].node)
		case head == nil && strings.HasPrefix(lines[0], first+" "):
			head = columns.cells(lines[0])
			fallthrough
		case head != nil && slices.Equal(head, columns.cells(lines[0])):
			for _, line := range lines[1:] {
				rows = addRow(rows, columns.cells(line), pods[i].node)
			}
		case strings.Contains(string(answers[i].stdout.data), "\n\n") || len(lines) > 1:
			return false
		default:
			others = addRow(others, []string{oneLine(lines[0])}, pods[i].node)
		}
		if text := oneLine(string(answers[i].stderr.data)); answers[i].problem == "" && lines[0] != "" && text != "" {
			others = addRow(others, []string{text}, pods[i].node)
		}
	}
	if head != nil {
		slices.SortStableFunc(rows, func(a, b tableRow) int { return strings.Compare(a.cells[0], b.cells[0]) })
		t := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
		printCells(t, head, "NODE")
		for _, r := range rows {
			printCells(t, r.cells, r.on(pods))
		}
		t.Flush()
		fmt.Fprint(stdout, strings.Repeat("\n", min(len(others), 1)))
	}
	for _, r := range others {
		fmt.Fprintf(stdout, "%s: %s\n", r.on(pods), r.cells[0])
	}
	return true
}

// on returns the nodes of a row.
func (r *tableRow) on(pods []pod) string {
	if len(r.nodes) == len(pods) && len(pods) > 1 {
		return "all"
	}
	const most = 4
	if n := len(r.nodes); n > most+1 {
		return fmt.Sprintf("%s and %d more", strings.Join(r.nodes[:most], ","), n-most)
	}
	return strings.Join(r.nodes, ",")
}

// printLines prints answers that have the same number of lines as one: a line
// that is not the same on all nodes, apart from spaces, is printed for each of
// its versions, with the nodes. It returns false for other answers.
func printLines(stdout io.Writer, pods []pod, answers []answer) bool {
	var all [][]string
	for i := range answers {
		all = append(all, strings.Split(strings.TrimSuffix(string(answers[i].stdout.data), "\n"), "\n"))
		if len(all[i]) != len(all[0]) || answers[i].problem != "" || len(answers[i].stderr.data) > 0 {
			return false
		}
	}
	for n := range all[0] {
		var versions []tableRow
		for i := range all {
			versions = addRow(versions, []string{oneLine(all[i][n])}, pods[i].node)
		}
		for _, v := range versions {
			line := all[slices.IndexFunc(pods, func(p pod) bool { return p.node == v.nodes[0] })][n]
			if len(versions) > 1 {
				line += "  (" + v.on(pods) + ")"
			}
			fmt.Fprintln(stdout, line)
		}
	}
	return true
}

// addRow adds a row of a node. A time becomes that of UTC.
func addRow(rows []tableRow, cells []string, node string) []tableRow {
	if at, err := time.Parse(time.RFC3339, cells[0]); err == nil {
		cells[0] = at.UTC().Format(time.RFC3339)
	} else if i := slices.IndexFunc(rows, func(r tableRow) bool { return slices.Equal(r.cells, cells) }); i >= 0 {
		rows[i].nodes = append(rows[i].nodes, node)
		return rows
	}
	return append(rows, tableRow{cells, []string{node}})
}

// printCells prints a row, with the cell of the node after the first one.
func printCells(t io.Writer, cells []string, node string) {
	fmt.Fprintln(t, strings.Join(slices.Insert(slices.Clone(cells), 1, node), "\t"))
}

// columns are the places at which the columns of a table begin.
type columns []int

// columnsOf returns the columns of a header, between which there are at least
// two spaces.
func columnsOf(header string) (starts columns) {
	spaces := 2
	for i, r := range []rune(header) {
		if r != ' ' && spaces >= 2 {
			starts = append(starts, i)
		}
		if spaces++; r != ' ' {
			spaces = 0
		}
	}
	return starts
}

// cells returns the cells of a line.
func (c columns) cells(line string) (cells []string) {
	runes := []rune(line)
	for i, start := range c {
		end := len(runes)
		if i+1 < len(c) {
			end = min(end, c[i+1])
		}
		cells = append(cells, oneLine(string(runes[min(start, end):end])))
	}
	return cells
}
