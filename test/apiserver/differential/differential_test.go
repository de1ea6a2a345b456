package differential

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/random"
)

// difference is a probe for which a side differs from the oracle.
type difference struct {
	probe
	want, got outcomes
	isWrong   bool

	before *random.App // of a memory: the app before the changes
}

// report describes the differences of an app, with its objects.
func (w *world) report(a *random.App, differences []difference) string {
	var text strings.Builder
	for _, d := range differences {
		from := w.sides[0].origins[d.from].name
		fmt.Fprintf(&text, "%s: %s -> %s\n    %-10s %s\n    %-10s %s\n", d.Kind, from, d.Frontend, "allowed", d.want,
			w.sides[d.side].proxy, d.got)
	}
	if a != nil && a.InAPI() != nil {
		live := a.InAPI().DeepCopy()
		live.ManagedFields = nil
		text.WriteString(random.YAML(live, a.Slices()))
	}
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
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { w.runSeed(t, seed, total) })
	}
	t.Logf("\n%v", total)
	if total["probes"] == 0 {
		t.Error("no probe")
	}
}

// runSeed judges the proxies in each state of a random cluster.
func (w *world) runSeed(t *testing.T, seed uint64, total counts) {
	ctx, g := t.Context(), random.New(seed, 0, random.Config{
		Endpoints: w.sides[0].endpoints, Conflicts: 2, ManyIPs: random.EnoughIPs,
	})
	must.NoError(t, w.api.Clear(ctx))
	must.NoError(t, w.api.SetZone(ctx, "")) // kube-proxy can miss a label that the Node has when it starts
	file, config := configuration(g, w.kube, w.sides[0].pods["a1"])
	w.restart(t, file)
	var before *random.State
	after, done := g.Initial(), []string(nil)
	var memories []*memory
	for number := range *steps {
		began := time.Now()
		w.advance(t, w.api.Changes(g, before, after))
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
			t.Errorf("step %d: %d probes differ\n%schanges: %s\nconfiguration:\n%s"+
				"To repeat it: make differential SEED=%d",
				number, len(differences), w.report(a, differences), strings.Join(done, ", "),
				inMode(labtest.SubjectMode(), file), seed)
		}
		t.Logf("seed %d, step %d: %d probes, %d differ; %.1f s to sync, %.1f s to compare",
			seed, number, len(probes), len(found), synced.Seconds(), (time.Since(began) - synced).Seconds())
		before = after
		after, done = g.Next(after)
	}
}
