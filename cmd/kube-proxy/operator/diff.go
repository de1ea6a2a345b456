package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// Exit codes of diff.
const (
	exitDifferent  = 1
	exitIncomplete = 2
)

// diff is the output of the command diff.
type diff struct {
	// Rows is the number of rows that were compared, AllRows approximately the
	// number of all rows.
	Rows    int `json:"rows"`
	AllRows int `json:"allRows"`
	// Complete is false if the comparison ended early. It can be continued at
	// Cursor.
	Complete bool   `json:"complete"`
	Cursor   string `json:"cursor"`

	Differences []keep.Difference `json:"differences"`
}

func newDiff() *cobra.Command {
	var flags proxyFlags
	var from string
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Compare the rules in the kernel with those that the proxy wants",
		Long: "diff compares the tables in the kernel with those that the proxy wants, row by row. It prints the " +
			"differences while it finds them, and changes nothing. The proxy reads 256 rows at a time between " +
			"syncs, and uses at most a fifth of a core.\n\n" +
			"A comparison that ends early prints a cursor, at which --from continues it. The rows of sets with more " +
			"than 4096 rows are not listed: Linux 6.15 and later report how many extra rows such a set has, earlier " +
			"kernels do not. Sets of clients with session affinity are not compared.\n\n" +
			"The exit code is 0 without a difference, 1 with one, and 2 if the comparison failed or ended early.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d := diff{Cursor: from, Differences: []keep.Difference{}}
			err := d.compare(cmd.Context(), &flags.client, func(found *keep.Difference) {
				if flags.output.forPeople() {
					printDifference(cmd.OutOrStdout(), found)
				}
			})
			return d.end(cmd.OutOrStdout(), &flags.output, err)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVar(&from, "from", "", "`CURSOR` of an earlier comparison, at which this one begins")
	flags.add(cmd, 10*time.Minute)
	return cmd
}

// compare runs the comparison. It calls each for every difference.
func (d *diff) compare(ctx context.Context, client *socket.Client, each func(*keep.Difference)) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	seen := make(map[keep.Difference]struct{})
	for step, err := range answer.Diff.Ask(ctx, client, d.Cursor) {
		if errors.Is(err, context.Canceled) {
			return errors.New("interrupted")
		}
		if err != nil {
			return err
		}
		for _, found := range step.Differences {
			same := found
			same.Owner = "" // several service ports can have one row
			if _, before := seen[same]; !before {
				seen[same] = struct{}{}
				d.Differences = append(d.Differences, found)
				each(&found)
			}
		}
		d.Rows, d.AllRows, d.Cursor, d.Complete = step.Rows, step.AllRows, step.Cursor, step.Done
	}
	if !d.Complete {
		return errors.New("the proxy ended the comparison early")
	}
	return nil
}

// end writes the result, and returns the exit code as an error. err is the
// error of the comparison.
func (d *diff) end(w io.Writer, out *output, err error) error {
	if err != nil && d.Rows == 0 {
		return exitError{exitIncomplete, err}
	}
	if err := out.write(w, d, d.printSummary); err != nil {
		return exitError{exitIncomplete, err}
	}
	switch {
	case err != nil:
		return exitError{exitIncomplete, fmt.Errorf("%w; --from %s continues the comparison", err, d.Cursor)}
	case len(d.Differences) > 0:
		return exitError{code: exitDifferent}
	}
	return nil
}

// printDifference writes a difference for people.
func printDifference(w io.Writer, d *keep.Difference) {
	fmt.Fprintf(w, "%s %s: %s", d.Family.Name(), d.Kind, d.Object)
	if d.Owner != "" {
		fmt.Fprintf(w, " (%s)", d.Owner)
	}
	fmt.Fprintln(w)
	if d.Found != "" {
		fmt.Fprintf(w, "  found: %s\n", d.Found)
	}
}

// printSummary writes the numbers, and what repairs the differences.
func (d *diff) printSummary(w io.Writer, _ bool) {
	compared := fmt.Sprint(d.Rows)
	if !d.Complete {
		compared += fmt.Sprintf(" of about %d", d.AllRows)
	}
	fmt.Fprintf(w, "Differences: %d. Rows that were compared: %s.\n", len(d.Differences), compared)
	is := func(kinds ...keep.DifferenceKind) bool {
		return slices.ContainsFunc(d.Differences,
			func(f keep.Difference) bool { return slices.Contains(kinds, f.Kind) })
	}
	if is(keep.Missing, keep.Changed) {
		fmt.Fprintln(w, "The proxy repairs missing and changed objects itself: it verifies its tables when another "+
			"program commits, and then compares all rows in the background.")
	}
	if is(keep.Extra) {
		fmt.Fprintln(w, "The proxy removes extra objects when it writes the whole table. Restart it to do so now.")
	}
}
