package operator

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/proxier/history"
)

// historyFlags are the flags of the command history.
type historyFlags struct {
	serviceFlags
	since time.Duration
}

func newHistory() *cobra.Command {
	var flags historyFlags
	cmd := &cobra.Command{
		Use:   "history [SERVICE]",
		Short: "Show what changed, when and why",
		Long: "history lists the changes that the proxy wrote: the endpoints and frontends of service ports that " +
			"came and went, refusals, and, without a SERVICE, writes of whole tables, repairs after changes by other " +
			"programs, and failures. Changes of a service port within a minute are one line.\n\n" +
			"CAUSE is change (of an object), start (of the proxy), damage (by another program), resync (the periodic " +
			"sync), node (a change of the node needs other sets), failure (an update failed, so everything was " +
			"written), or ejection of an endpoint. TOOK is the duration of the sync.\n\n" +
			"The proxy keeps the last 1,000 changes in memory. If there are more, those of the namespace with most " +
			"are forgotten first. They end with the process.",
		Example: "  nftproxy history --since 10m\n" +
			"  nftproxy history shop/web\n" +
			"  nftproxy history -n shop -w",
		Args:              argument(serviceForms, true),
		RunE:              flags.run,
		ValidArgsFunction: flags.completeServices,
	}
	flags.addNamespace(cmd)
	cmd.Flags().DurationVar(&flags.since, "since", 0, "show the changes of this last `TIME` (default all)")
	flags.addWatch(cmd)
	flags.add(cmd, 30*time.Second)
	return cmd
}

// run lists the history, once or until the user interrupts it.
func (f *historyFlags) run(cmd *cobra.Command, args []string) error {
	name, err := f.parseNames(args)
	switch {
	case err != nil:
		return err
	case f.since < 0:
		return misusef("--since %v is not greater than 0", f.since)
	}
	q := history.Query{ServiceName: name, Since: f.since}
	ctx := cmd.Context()
	if f.watch {
		return watchRows(ctx, cmd.OutOrStdout(), historyHead, "", func(ctx context.Context) ([]row, error) {
			entries, err := f.ask(ctx, q)
			q.Since = recentChanges // what is older does not change
			return historyRows(entries), f.explainMissing(ctx, name, err)
		})
	}
	entries, err := f.ask(ctx, q)
	if err != nil {
		return f.explainMissing(ctx, name, err)
	}
	return f.output.write(cmd.OutOrStdout(), entries, func(w io.Writer, _ bool) {
		if len(entries) == 0 {
			fmt.Fprintln(w, f.none(ctx, "changes", name.Namespace))
			return
		}
		printHistory(w, entries)
	})
}

// recentChanges is the age of the entries that can still change: a burst ends
// after a minute.
const recentChanges = 2 * time.Minute

// ask returns the entries of a query.
func (f *historyFlags) ask(ctx context.Context, q history.Query) (entries []*answer.HistoryEntry, err error) {
	entries = []*answer.HistoryEntry{} // an empty list in JSON, not null
	for e, failed := range answer.History.Ask(ctx, &f.client, q) {
		if failed != nil {
			return nil, failed
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// printHistory writes entries, the last at the end.
func printHistory(w io.Writer, entries []*answer.HistoryEntry) {
	t := newTable(w)
	fmt.Fprintln(t, historyHead)
	for _, r := range historyRows(entries) {
		fmt.Fprintln(t, r.columns)
	}
	t.Flush()
}

const historyHead = "TIME\tFAMILY\tCAUSE\tTOOK\tSUBJECT\tCHANGE"

// historyRows returns the rows of entries.
func historyRows(entries []*answer.HistoryEntry) (rows []row) {
	for _, e := range entries {
		at := e.Time.Format(time.RFC3339)
		cause := cmp.Or(string(e.Cause), string(e.Kind))
		columns := []string{at, e.Family.Name(), cause, tookText(e), e.Subject, e.Text}
		about := fmt.Sprint(e.Time.UnixNano(), e.Family, e.Kind, e.Subject, e.Protocol)
		rows = append(rows, row{about, strings.Join(columns, "\t")})
	}
	return rows
}

func tookText(e *answer.HistoryEntry) string {
	if e.Seconds == 0 {
		return "-" // a repair of rows is no sync
	}
	return took(e.Seconds)
}

// took returns the duration of a sync for people.
func took(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(10 * time.Microsecond).String()
}
