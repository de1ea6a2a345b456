package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// change is an entry of the answer of `nftproxy history -o json`, with the
// fields used here.
type change struct {
	Time                               time.Time
	Family, Kind, Cause, Subject, Text string
	Seconds                            float64
	node                               string
}

// printHistory prints the changes of all nodes in the order of time, and then
// the problems of nodes. The answers are JSON.
func printHistory(stdout io.Writer, pods []pod, answers []answer) {
	var all []change
	var problems []string
	for i := range answers {
		var changes []change
		if err := json.Unmarshal(answers[i].stdout.data, &changes); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %s", pods[i].node, answers[i].failure("JSON")))
		}
		for _, c := range changes {
			c.node = pods[i].node
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b change) int { return a.Time.Compare(b.Time) })
	if len(all) == 0 {
		fmt.Fprintln(stdout, "No changes")
	} else {
		printChanges(stdout, all)
	}
	if len(problems) > 0 {
		fmt.Fprintln(stdout)
	}
	for _, p := range problems {
		fmt.Fprintln(stdout, p)
	}
}

func printChanges(stdout io.Writer, all []change) {
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "TIME\tNODE\tFAMILY\tCAUSE\tTOOK\tSUBJECT\tCHANGE")
	for _, c := range all {
		took := "-"
		if c.Seconds > 0 {
			took = time.Duration(c.Seconds * float64(time.Second)).Round(10 * time.Microsecond).String()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.Time.UTC().Format(time.RFC3339), c.node, oneLine(c.Family),
			oneLine(cmp.Or(c.Cause, c.Kind)), took, oneLine(c.Subject), oneLine(c.Text))
	}
	table.Flush()
}
