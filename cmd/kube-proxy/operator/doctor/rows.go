package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

const (
	rowsCheck = "rows"
	// rowsTime is the time of checkRows unless all rows are compared.
	rowsTime = time.Second
	// listedRows is the number of differences that are listed then.
	listedRows = 10
)

// checkRows compares the tables in the kernel with those that the proxy wants,
// row by row.
func checkRows(ctx context.Context, n *node) Finding {
	if n.Proxy == nil || n.Differences == nil {
		return n.withoutProxy()
	}
	if !n.AllRows {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rowsTime)
		defer cancel()
	}
	var last keep.DiffStep
	var found []keep.Difference
	seen := make(map[keep.Difference]bool)
	for step, err := range n.Differences(ctx) {
		if err != nil && ctx.Err() == nil && len(found) == 0 {
			return unknown(err)
		}
		if err != nil {
			break
		}
		for _, d := range step.Differences {
			same := d
			same.Owner = "" // several service ports can have one row
			if !seen[same] {
				seen[same] = true
				found = append(found, d)
			}
		}
		last = *step
	}
	compared := fmt.Sprint(last.Rows)
	if !last.Done {
		compared += fmt.Sprintf(" of about %d: nftproxy doctor --rows compares all", last.AllRows)
	}
	if len(found) == 0 {
		return ok("the kernel has what the proxy wants (rows that were compared: " + compared + ")")
	}
	var lines []string
	for i, d := range found {
		if i == listedRows && !n.AllRows {
			lines = append(lines, fmt.Sprintf("and %d more: nftproxy doctor --rows lists all", len(found)-i))
			break
		}
		lines = append(lines, describe(&d))
	}
	return warn(fmt.Sprintf("the tables in the kernel differ from what the proxy wants (differences: %d, rows that "+
		"were compared: %s)", len(found), compared), remedyOf(found)).With(lines...)
}

// describe returns a difference in one line.
func describe(d *keep.Difference) string {
	text := fmt.Sprintf("%s %s: %s", d.Family.Name(), d.Kind, d.Object)
	if d.Owner != "" {
		text += fmt.Sprintf(" (%s)", d.Owner)
	}
	if d.Found != "" {
		text += "; found: " + d.Found
	}
	return text
}

// remedyOf returns what repairs differences.
func remedyOf(found []keep.Difference) string {
	if slices.ContainsFunc(found, func(d keep.Difference) bool { return d.Kind != keep.Extra }) {
		return "wait for the repair: the proxy verifies its tables when another program commits, and then compares " +
			"all rows in the background; if the differences return, end the program that changes the table"
	}
	return "restart the proxy: it removes extra objects when it writes the whole table"
}
