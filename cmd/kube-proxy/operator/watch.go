package operator

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// watchPeriod is the interval at which a command with --watch asks again.
const watchPeriod = time.Second

// addWatch adds the flag --watch. With it, the command has no timeout.
func (f *proxyFlags) addWatch(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "after the list, print what changes, until interrupted")
}

// interruptible returns a context that ends when the user interrupts the
// command.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// row is a row of a table: its columns with tabs between them, and what it is
// about.
type row struct{ about, columns string }

// watchRows prints a table, and then each row again that changed, until ctx
// ends. A row that is gone is printed with the columns gone, unless they are
// empty. list returns the rows; if it fails later, the error is printed
// instead.
func watchRows(ctx context.Context, w io.Writer, head, gone string, list func(context.Context) ([]row, error)) error {
	known, failed := make(map[string]string), ""
	rows, err := list(ctx)
	if err != nil {
		return err
	}
	for {
		t := newTable(w)
		if head != "" {
			fmt.Fprintln(t, head)
			head = ""
		}
		for _, r := range rows {
			if known[r.about] != r.columns {
				known[r.about] = r.columns
				fmt.Fprintln(t, r.columns)
			}
		}
		if err == nil && gone != "" {
			for _, about := range slices.Sorted(maps.Keys(known)) {
				if !slices.ContainsFunc(rows, func(r row) bool { return r.about == about }) {
					delete(known, about)
					fmt.Fprintln(t, about+gone)
				}
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchPeriod):
		}
		if rows, err = list(ctx); err == nil {
			failed = ""
		} else if ctx.Err() == nil && err.Error() != failed {
			failed = err.Error()
			fmt.Fprintln(w, failed)
		}
	}
}
