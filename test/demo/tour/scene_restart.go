package tour

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/nftproxy/nftproxy/test/demo/cluster"
	"github.com/nftproxy/nftproxy/test/demo/page"
)

// showRestart kills kube-proxy on one node, changes endpoints meanwhile, and starts it again.
func (t *tour) showRestart(ctx context.Context) error {
	t.page.Scene("kube-proxy is killed and started again")
	t.page.Text("The rules are the kernel's: connections need no kube-proxy that runs, only changes do. kube-proxy of node1 is " +
		"killed while the four clients of above go on. While it is dead, new pods take over from those of shop/web: node2 " +
		"takes that up at once, node1 when its kube-proxy is there again. The old pods run on until then.")
	t.page.Try("kill -9 " + strconv.Itoa(t.stage.PID("node1")))
	stream, err := t.startStream(ctx, t.webLines(), steady())
	if err != nil {
		return err
	}
	defer stream.end()
	r := &restart{tour: t, stream: stream, old: t.services.web.Endpoints, new: extraPods()}
	if err := r.play(ctx); err != nil {
		return err
	}
	r.show(stream.end())
	return nil
}

// restart is what happens to kube-proxy of node1 while clients keep connecting.
type restart struct {
	*tour
	stream   *stream
	old, new []cluster.Endpoint

	begun, killed, started time.Time
	// onNode1 and onNode2 are how long after the start, and after the change, the new pods answered.
	onNode1, onNode2 time.Duration
}

func (r *restart) play(ctx context.Context) error {
	r.begun = time.Now()
	if err := r.stream.awaitMore(ctx); err != nil {
		return err
	}
	r.killed = time.Now()
	if err := r.stage.KillProxy("node1"); err != nil {
		return err
	}
	for _, e := range r.new {
		if err := r.stage.AddPod(e, r.services.web.Ports); err != nil {
			return err
		}
	}
	takeOver, err := r.replace(r.old, r.new)
	if err != nil {
		return err
	}
	if r.onNode2, err = r.awaitChange(ctx, takeOver, throughNode2); err != nil {
		return err
	}
	if err := r.stream.awaitMore(ctx); err != nil {
		return err
	}
	r.started = time.Now()
	if err := r.stage.StartProxy(ctx, "node1"); err != nil {
		return err
	}
	takeOver.at = r.started
	if r.onNode1, err = r.awaitChange(ctx, takeOver, throughNode1); err != nil {
		return err
	}
	return r.restore(ctx)
}

// replace puts endpoints of shop/web in the place of others.
func (r *restart) replace(before, after []cluster.Endpoint) (change, error) {
	at, err := r.stage.WriteEndpoints(r.services.web.Service, after)
	return change{at: at, before: cluster.Names(before), after: cluster.Names(after)}, err
}

// awaitChange waits until the change is in force for the lines through one node, and returns how long that took.
func (r *restart) awaitChange(ctx context.Context, c change, through func(attempt) bool) (time.Duration, error) {
	var when []time.Time
	err := r.stream.await(ctx, "the new pods answer", func(all []attempt) (complete bool) {
		when, complete = c.inForce(linesOfNode, renumbered(all, through))
		return complete
	})
	return c.delay(when), err
}

// restore puts the old pods back.
func (r *restart) restore(ctx context.Context) error {
	back, err := r.replace(r.new, r.old)
	if err != nil {
		return err
	}
	for _, through := range []func(attempt) bool{throughNode1, throughNode2} {
		if _, err := r.awaitChange(ctx, back, through); err != nil {
			return err
		}
	}
	for _, e := range r.new {
		if err := r.stage.RemovePod(e.Pod); err != nil {
			return err
		}
	}
	return nil
}

func (r *restart) show(attempts []attempt) {
	table := newStreamTable("KUBE-PROXY OF NODE1")
	r.addRow(&table, "runs", accountOf(attempts, between(r.begun, r.killed)))
	r.addRow(&table, "is dead", accountOf(attempts, between(r.killed, r.started)))
	r.addRow(&table, "runs again", accountOf(attempts, between(r.started, time.Now())))
	r.page.Table(table)
	while := accountOf(attempts, func(a attempt) bool { return throughNode1(a) && between(r.killed, r.started)(a) })
	r.claim(slices.Equal(while.servers, cluster.Names(r.old)),
		"As long as kube-proxy was dead %s answered through node1, as before.", shortNames(while.servers))
	r.page.Text("%s answered through node2 %d ms after the change, through node1 %d ms after kube-proxy was started again.",
		shortNames(cluster.Names(r.new)), r.onNode2.Milliseconds(), r.onNode1.Milliseconds())
}

// newStreamTable returns a table of how connections ended, for addRow.
func newStreamTable(what string) page.Table {
	return page.Table{Columns: []string{what, "CONNECTIONS", "ANSWERED", "REFUSED", "LOST"}, Right: []int{1, 2, 3, 4}}
}

// addRow adds a stretch of time in which every connection must be answered.
func (t *tour) addRow(table *page.Table, name string, sum account) {
	ok := sum.attempts > 0 && sum.answered == sum.attempts
	t.addAccount(table, t.check(ok, "%s: %d of %d connections were answered", name, sum.answered, sum.attempts), name, sum)
}

func (t *tour) addAccount(table *page.Table, mark page.Mark, name string, sum account) {
	table.Add(mark, name, strconv.Itoa(sum.attempts), strconv.Itoa(sum.answered), strconv.Itoa(sum.refused), strconv.Itoa(sum.lost))
}

// linesOfNode is how many of webLines come through each node.
const linesOfNode = 2

// The lines of webLines by the node that they come through.
func throughNode1(a attempt) bool { return a.line < linesOfNode }
func throughNode2(a attempt) bool { return a.line >= linesOfNode }

// renumbered returns the attempts that the filter lets through, their lines numbered from 0 again.
func renumbered(attempts []attempt, filter func(attempt) bool) []attempt {
	var some []attempt
	for _, a := range attempts {
		if filter(a) {
			a.line %= linesOfNode
			some = append(some, a)
		}
	}
	return some
}
