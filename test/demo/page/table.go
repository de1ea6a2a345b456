package page

import (
	"strings"
	"unicode/utf8"
)

// Table is a table under construction.
type Table struct {
	// Columns are the headings. A heading can have several lines.
	Columns []string
	// Right names the columns (by number, from 0) that are aligned to the right.
	Right []int
	rows  []row
}

type row struct {
	mark  Mark
	cells []string
}

// tableLine is a line of the rendered table, without its mark.
type tableLine struct {
	text string
	mark Mark
}

// columnGap is between two columns.
const columnGap = "  "

// Add adds a row, which may have fewer cells than there are columns.
func (t *Table) Add(mark Mark, cells ...string) {
	t.rows = append(t.rows, row{mark, cells})
}

// headLines is how many lines the headings take.
func (t *Table) headLines() int {
	lines := 0
	for _, c := range t.Columns {
		lines = max(lines, 1+strings.Count(c, "\n"))
	}
	return lines
}

// lines renders the table: all lines with a mark have the same length.
func (t *Table) lines() []tableLine {
	rows := append(t.head(), t.rows...)
	widths := make([]int, len(t.Columns))
	for _, r := range rows {
		for i, cell := range r.cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var lines []tableLine
	for _, r := range rows {
		lines = append(lines, tableLine{t.join(r.cells, widths), r.mark})
	}
	return lines
}

// head makes rows of the headings, the last line of each at the bottom.
func (t *Table) head() []row {
	rows := make([]row, t.headLines())
	for i := range rows {
		rows[i].cells = make([]string, len(t.Columns))
	}
	for i, heading := range t.Columns {
		parts := strings.Split(heading, "\n")
		for j, part := range parts {
			rows[len(rows)-len(parts)+j].cells[i] = part
		}
	}
	return rows
}

func (t *Table) join(cells []string, widths []int) string {
	padded := make([]string, len(widths))
	for i, width := range widths {
		cell := ""
		if i < len(cells) {
			cell = cells[i]
		}
		space := strings.Repeat(" ", width-utf8.RuneCountInString(cell))
		if t.isRight(i) {
			padded[i] = space + cell
		} else {
			padded[i] = cell + space
		}
	}
	return strings.Join(padded, columnGap)
}

func (t *Table) isRight(column int) bool {
	for _, r := range t.Right {
		if r == column {
			return true
		}
	}
	return false
}
