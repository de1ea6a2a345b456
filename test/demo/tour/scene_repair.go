package tour

import (
	"context"
	"time"

	"github.com/nftproxy/nftproxy/test/demo/page"
	"github.com/nftproxy/nftproxy/test/lab"
)

// impatient is for lines some of whose connections will get lost: they show when connections work again.
func impatient() streamOptions {
	return streamOptions{period: 10 * time.Millisecond, timeout: time.Second}
}

// showRepair flushes the ruleset of a node.
func (t *tour) showRepair(ctx context.Context) error {
	t.page.Scene("Somebody flushes the ruleset")
	t.page.Text("Another program, or a person, removes all rules of node1. kube-proxy checks every 50 ms whether another " +
		"program committed anything, verifies its tables, and writes them again. Connections begun in between are lost; node2 is not affected.")
	t.page.Try(t.stage.CommandLine("node1", "nft flush ruleset"))
	before, err := t.tables(ctx)
	if err != nil {
		return err
	}
	stream, err := t.startStream(ctx, t.webLines(), impatient())
	if err != nil {
		return err
	}
	defer stream.end()
	begun := time.Now()
	if err := stream.awaitMore(ctx); err != nil {
		return err
	}
	hole := gap{from: time.Now()}
	if _, err := t.stage.Run(ctx, "node1", t.nft, "flush", "ruleset"); err != nil {
		return err
	}
	flushed := time.Now()
	err = stream.await(ctx, "connections through node1 work again", func(all []attempt) (complete bool) {
		hole.until, complete = repaired(stream.lines, flushed, all)
		return complete
	})
	if err != nil {
		return err
	}
	if err := stream.awaitMore(ctx); err != nil {
		return err
	}
	after, err := t.tables(ctx)
	if err != nil {
		return err
	}
	t.showHole(stream.end(), begun, hole)
	t.claim(before == after, "The tables of both families are what they were before, row by row.")
	return nil
}

// repaired returns for each line the first time after the flush at which a connection was made.
func repaired(lines int, flushed time.Time, attempts []attempt) (when []time.Time, complete bool) {
	when = make([]time.Time, lines)
	missing := lines
	for _, a := range attempts {
		if a.outcome == lab.Answered && a.start.After(flushed) && when[a.line].IsZero() {
			when[a.line] = a.end
			missing--
		}
	}
	return when, missing == 0
}

// showHole shows how connections ended before, during and after the hole.
func (t *tour) showHole(attempts []attempt, begun time.Time, hole gap) {
	var (
		table  = newStreamTable("WHEN AND WHERE")
		during = func(a attempt) bool { return throughNode1(a) && hole.excuses(a) }
		lost   = accountOf(attempts, during)
	)
	early := between(begun, hole.from)
	t.addRow(&table, "before", accountOf(attempts, func(a attempt) bool {
		return early(a) && !during(a) // one that was under way when the rules went is one of those that are lost
	}))
	t.addAccount(&table, page.None, "through node1, until it is repaired", lost)
	t.addRow(&table, "through node1, after that", accountOf(attempts, func(a attempt) bool {
		return throughNode1(a) && a.start.After(hole.from) && !hole.excuses(a)
	}))
	t.addRow(&table, "through node2, all the while", accountOf(attempts, func(a attempt) bool {
		return throughNode2(a) && a.start.After(hole.from)
	}))
	t.page.Table(table)
	var longest time.Duration
	for _, when := range hole.until[:2] {
		longest = max(longest, when.Sub(hole.from))
	}
	t.page.Text("Connections through node1 were made again %d ms after the flush.", longest.Milliseconds())
}

// tables returns what nft lists of node1's tables, in an order that does not depend on that of writing.
func (t *tour) tables(ctx context.Context) (string, error) {
	var text string
	for _, family := range []string{"ip", "ip6"} {
		listing, err := t.stage.Run(ctx, "node1", t.nft, "list", "table", family, "kube-proxy")
		if err != nil {
			return "", err
		}
		text += canonical(parseListing(listing))
	}
	return text, nil
}
