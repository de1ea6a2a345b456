package differential

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/random"
)

// difference is a probe for which a side differs from the oracle.
type difference struct {
	probe
	want  outcomes
	got   [2]outcomes // by side
	wrong [2]bool

	before *random.App // of a memory: the app before the changes
}

func (d *difference) isDifferent() bool { return d.wrong[0] || d.wrong[1] }

// step is a state of the cluster of a seed.
type step struct {
	seed    uint64
	number  int
	config  string
	changes []string // that led to it
}

// report describes the differences of an app, with its objects.
func (s step) report(a *random.App, differences []difference) string {
	var text strings.Builder
	fmt.Fprintf(&text, "seed %d, step %d: %d probes differ\n", s.seed, s.number, len(differences))
	for _, d := range differences {
		fmt.Fprintf(&text, "%s\n", d.probe)
		fmt.Fprintf(&text, "    %-10s %s\n", "allowed", d.want)
		for i, got := range d.got {
			fmt.Fprintf(&text, "    %-10s %s\n", proxies()[i], got)
		}
	}
	fmt.Fprintf(&text, "changes: %s\nconfiguration:\n%s", strings.Join(s.changes, ", "), s.config)
	if a != nil {
		live := a.Live.DeepCopy()
		live.ManagedFields = nil
		text.WriteString(random.YAML(live))
		for _, slice := range a.Slices {
			text.WriteString(random.YAML(slice))
		}
	}
	fmt.Fprintf(&text, "To repeat it: make differential SEED=%d\n", s.seed)
	return text.String()
}

// TestDifferential runs the clusters of -seeds seeds from -first.
func TestDifferential(t *testing.T) {
	w := newWorld(t)
	total := newSummary()
	for seed := *first; seed < *first+*seeds; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			if err := w.runSeed(t, seed, total); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Logf("%v", total)
	if total.count(total.probes) == 0 {
		t.Error("no probe")
	}
}

// runSeed compares the proxies in each state of a random cluster.
func (w *world) runSeed(t *testing.T, seed uint64, total *summary) error {
	ctx, g := t.Context(), random.New(seed, 0, random.Config{
		Endpoints: w.sides[0].endpoints, Conflicts: 2, ManyIPs: random.EnoughIPs,
	})
	if err := w.api.Clear(ctx); err != nil {
		return err
	}
	file, config := configuration(g, w.kube, w.sides[0].pods["a1"])
	if err := w.restart(ctx, file); err != nil {
		return err
	}
	total.seeds++
	before, after := &random.State{}, g.Initial()
	at := step{seed: seed, config: file}
	var memories []*memory
	for ; at.number < *steps; at.number++ {
		began := time.Now()
		if err := w.advance(ctx, g, before, after, at.number == 0); err != nil {
			return fmt.Errorf("step %d: %w", at.number, err)
		}
		if labtest.Subject() == "" { // kube-proxy repairs nothing
			if err := w.sides[1].damage(ctx, int(seed-*first)**steps+at.number); err != nil {
				return fmt.Errorf("step %d: %w", at.number, err)
			}
		}
		j := newJudge(w.sides, config, after)
		probes := probesOf(g, before, after)
		synced := time.Since(began)
		found := append(j.run(ctx, probes), j.review(ctx, memories, before, after)...)
		for _, m := range memories {
			probes = append(probes, m.probe)
		}
		total.add(at.changes, probes)
		memories = j.remember(ctx, g, after)
		for a, differences := range total.unknown(found) {
			t.Error(at.report(a, differences))
		}
		t.Logf("seed %d, step %d: %d probes, %d differ; %.1f s to sync, %.1f s to compare",
			seed, at.number, len(probes), len(found), synced.Seconds(), (time.Since(began) - synced).Seconds())
		before = after
		after, at.changes = g.Next(after)
	}
	return nil
}

// advance changes the cluster and waits for both proxies.
func (w *world) advance(ctx context.Context, g *random.Generator, before, after *random.State, initial bool) error {
	if initial {
		before = nil
	}
	for _, change := range w.api.Changes(g, before, after) {
		if err := change(ctx); err != nil {
			return err
		}
	}
	return w.settle(ctx)
}
