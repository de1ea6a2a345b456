package operator

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/top"
)

// topFlags are the flags of the command top.
type topFlags struct {
	serviceFlags
	terminal  terminal
	sort      string
	once      bool
	endpoints bool
}

func newTop(t terminal) *cobra.Command {
	flags := topFlags{terminal: t}
	cmd := &cobra.Command{
		Use:   "top [SERVICE]",
		Short: "Show what happens to connections now",
		Long: "top counts the connections to service ports and their endpoints in the connection tracking of this " +
			"node, and repeats that each second until it is interrupted. With a SERVICE or --endpoints, it lists " +
			"endpoints.\n\n" +
			"CONNECTIONS are the entries of connection tracking that were translated to an endpoint, also of " +
			"connections that ended a short time ago. OPEN are established, or UDP with answers. UNANSWERED have " +
			"no answer yet: attempts of clients, or UDP without answers. -o wide adds OPENING, whose handshake " +
			"has begun, and CLOSING, which a side has ended, to TIME_WAIT. NEW/S are those that came since the " +
			"last count, and REPLIES/S those that got their first answer. A column REFUSED/S appears while TCP " +
			"connections are refused, by an endpoint or by a firewall in its name. CHANGED is the last change " +
			"that nftproxy history has. EJECTED endpoints answer nothing and get no new connections. With a " +
			"SERVICE, the last column is the reason why an endpoint is not used; an endpoint that is gone is in " +
			"no EndpointSlice. The first line has the totals; others are connections that another program " +
			"translated, or whose Service is gone.\n\n" +
			"Attempts whose packets are dropped before connection tracking confirms them, such as by a rule in " +
			"the hook forward or input, are not counted: nftproxy trace shows them. Nor are connections that begin " +
			"and vanish between two counts.\n\n" +
			"The proxy counts only while this command runs, with at most 5 % of a core: with 100,000 connections, " +
			"each 2.7 s. If the output is no terminal, one table follows the other. With --once, -o json or -o yaml, " +
			"the command prints one table and ends.",
		Example: "  nftproxy top\n" +
			"  nftproxy top shop/web --sort unanswered -o wide\n" +
			"  nftproxy top -n shop --endpoints --once\n" +
			"  nftproxy top --endpoints -o json",
		Args:              argument(serviceForms, true),
		RunE:              flags.run,
		ValidArgsFunction: flags.completeServices,
	}
	flags.addNamespace(cmd)
	cmd.Flags().StringVar(&flags.sort, "sort", top.Keys()[0], "sort by `KEY`: "+strings.Join(top.Keys(), ", "))
	complete(cmd, "sort", top.Keys()...)
	cmd.Flags().BoolVar(&flags.once, "once", false, "print one table and end")
	cmd.Flags().BoolVar(&flags.endpoints, "endpoints", false, "list the endpoints of all Services")
	flags.add(cmd, 30*time.Second)
	cmd.Flag("timeout").Usage = "`TIME` to wait for each answer"
	cmd.PreRun = func(*cobra.Command, []string) { flags.watch = !flags.once && flags.output.forPeople() }
	return cmd
}

// run prints one snapshot, or a snapshot each second until the user interrupts
// it.
func (f *topFlags) run(cmd *cobra.Command, args []string) error {
	name, err := f.parseNames(args)
	switch {
	case err != nil:
		return err
	case !slices.Contains(top.Keys(), f.sort):
		return misusef("--sort %q is unknown: want %s", f.sort, strings.Join(top.Keys(), ", "))
	}
	if name.Name == "" && name.Namespace != "" && f.output.forPeople() {
		if meant, ok := f.meantNamespace(cmd.Context(), name.Namespace); ok && meant != name.Namespace {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), f.none(cmd.Context(), "Services", name.Namespace))
			return err
		}
	}
	q := answer.TopQuery{
		ServiceName: name, Sort: f.sort, Limit: math.MaxInt,
		Endpoints: f.endpoints || name.Name != "",
	}
	if f.watch {
		return f.watchTop(cmd, q)
	}
	s, err := f.ask(cmd.Context(), q)
	if err != nil {
		return err
	}
	return f.output.write(cmd.OutOrStdout(), s, func(w io.Writer, _ bool) { f.layout().Print(w, s) })
}

// ask returns a snapshot.
func (f *topFlags) ask(ctx context.Context, q answer.TopQuery) (*top.Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if _, height, ok := f.terminal.size(); ok && f.watch {
		q.Limit = height
	}
	s, err := answer.Top.AskOne(ctx, &f.client, q)
	return s, f.explainMissing(ctx, q.ServiceName, err)
}

// layout returns the layout for the output. A table that scrolls is as long as
// it is.
func (f *topFlags) layout() top.Layout {
	width, height, _ := f.terminal.size()
	if !f.watch {
		height = 0
	}
	return top.Layout{Width: width, Height: max(height-1, 0), Wide: f.output.format == formatWide}
}

// watchTop prints snapshots, and at the end what it has seen.
func (f *topFlags) watchTop(cmd *cobra.Command, q answer.TopQuery) error {
	ctx, w, seen := cmd.Context(), cmd.OutOrStdout(), watched{}
	_, _, isTerminal := f.terminal.size()
	if isTerminal {
		fmt.Fprint(f.terminal, cursorHome+clearBelow)
	}
	for n := 0; ; n++ {
		s, err := f.ask(ctx, q)
		switch {
		case ctx.Err() != nil:
			_, err := fmt.Fprintln(cmd.ErrOrStderr(), seen)
			return err
		case err != nil && n == 0:
			return err
		}
		var text bytes.Buffer
		wait := 0 * time.Second // the proxy waits for the next walk
		if err == nil {
			seen.add(s)
			f.layout().Print(&text, s)
		} else {
			fmt.Fprintln(&text, err)
			wait = watchPeriod
		}
		if !isTerminal {
			if n > 0 {
				fmt.Fprintln(w)
			}
			_, err = text.WriteTo(w)
		} else {
			err = f.terminal.show(text.Bytes())
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// watched is what snapshots have had together.
type watched struct {
	seconds, fresh, replies, refused float64
	unanswered, ejected              int // the most at a time
}

func (w *watched) add(s *top.Snapshot) {
	w.seconds += s.Seconds
	w.fresh += s.Total.New * s.Seconds
	w.replies += s.Total.Replies * s.Seconds
	w.refused += s.Total.Refused * s.Seconds
	w.unanswered, w.ejected = max(w.unanswered, s.Total.Unanswered), max(w.ejected, s.Total.Ejected)
}

// String returns the summary for the end.
func (w watched) String() string {
	return fmt.Sprintf("in %.0f s: new connections: %.0f, first answers: %.0f, refused: %.0f, "+
		"at most unanswered: %d, at most ejected: %d",
		w.seconds, w.fresh, w.replies, w.refused, w.unanswered, w.ejected)
}
