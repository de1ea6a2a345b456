package differential

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/cluster/objects"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/random"
)

// difference is a probe for which a side differs from the oracle.
type difference struct {
	probe
	want, got outcomes
	isWrong   bool

	before *random.App // of a memory: the app before the changes
}

// step is a state of the cluster of a seed.
type step struct {
	seed    uint64
	number  int
	config  string
	changes []string // that led to it
	origins []*origin
}

// report describes the differences of an app, with its objects.
func (s step) report(a *random.App, differences []difference) string {
	var text strings.Builder
	fmt.Fprintf(&text, "seed %d, step %d: %d probes differ\n", s.seed, s.number, len(differences))
	for _, d := range differences {
		fmt.Fprintf(&text, "%s: %s -> %s\n    %-10s %s\n    %-10s %s\n", d.Kind, s.origins[d.from].name, d.Frontend,
			"allowed", d.want, proxies()[d.side], d.got)
	}
	fmt.Fprintf(&text, "changes: %s\nconfiguration:\n%s", strings.Join(s.changes, ", "), s.config)
	if a != nil && a.InAPI() != nil {
		live := a.InAPI().DeepCopy()
		live.ManagedFields = nil
		text.WriteString(random.YAML(live) + random.YAML(a.Slices()))
	}
	fmt.Fprintf(&text, "To repeat it: make differential SEED=%d\n", s.seed)
	return text.String()
}

// counts are the numbers of what was compared.
type counts map[string]int

func (c counts) String() (text string) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		text += fmt.Sprintf("%7d %s\n", c[name], name)
	}
	return text
}

// unknown counts differences and returns those without a known reason, by app.
func (c counts) unknown(found []difference) map[*random.App][]difference {
	unknown := map[*random.App][]difference{}
	for _, d := range found {
		objects, rest, _ := strings.Cut(d.knownReason(), ";")
		switch {
		case !d.isKnown():
			c["differences"]++
			unknown[d.app] = append(unknown[d.app], d)
		case labtest.Subject() != "":
			c["not judged: "+objects]++
		default:
			c["known difference: "+objects+";"+rest]++
		}
	}
	return unknown
}

// TestDifferential runs the clusters of -seeds seeds from -first.
func TestDifferential(t *testing.T) {
	w, total := newWorld(t), counts{}
	for seed := *first; seed < *first+*seeds; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			if err := w.runSeed(t, seed, total); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Logf("\n%v", total)
	if total["probes"] == 0 {
		t.Error("no probe")
	}
}

// runSeed judges the proxies in each state of a random cluster.
func (w *world) runSeed(t *testing.T, seed uint64, total counts) error {
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
	var before *random.State
	after, at := g.Initial(), step{seed: seed, config: file, origins: w.sides[0].origins}
	var memories []*memory
	for ; at.number < *steps; at.number++ {
		began := time.Now()
		if err := w.advance(ctx, w.api.Changes(g, before, after)); err != nil {
			return fmt.Errorf("step %d: %w", at.number, err)
		}
		if before == nil {
			before = &random.State{}
		}
		j := newJudge(w.sides, config, after)
		probes, synced := w.sides[0].probes(g, before, after), time.Since(began)
		found := collect(len(probes), func(i int) difference { return j.judge(ctx, probes[i]) })
		found = append(found, j.review(ctx, memories, before, after)...)
		for _, m := range memories {
			probes = append(probes, m.probe)
		}
		for _, p := range probes {
			total["probes"]++
			total["probes: "+string(p.Kind)]++
		}
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
func (w *world) advance(ctx context.Context, changes []objects.Change) error {
	for _, change := range changes {
		if err := change(ctx); err != nil {
			return err
		}
	}
	return w.settle(ctx)
}
