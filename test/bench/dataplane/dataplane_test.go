package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/apiserver/benchmark/benchmarktest"
	"github.com/nftproxy/nftproxy/test/apiserver/dataplane/result"
)

// TestDataplane runs a short form of the benchmark and checks that no figure is
// missing.
func TestDataplane(t *testing.T) {
	output := t.TempDir()
	rules := filepath.Join(t.TempDir(), "three.nft")
	if err := os.WriteFile(rules, []byte(threeRules(frontends(20), endpoints(20, 10))), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := parseOptions([]string{
		"--nftproxy=" + benchmarktest.BuildProxy(t), "--programs=" + benchmarktest.Repository + "/.cache/apiserver",
		"--services=20,40", "--instances=1", "--rounds=2", "--connections=20", "--throughput=5ms",
		"--rules=" + rules, "--output=" + output,
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	o.progress = t.Output()
	if err := o.run(t.Context(), t.Output()); err != nil {
		t.Fatal(err)
	}
	r, err := result.Read(o.resultFile())
	if err != nil {
		t.Fatal(err)
	}
	if r.Command == "" || r.Date.IsZero() || r.Machine.Cores == 0 || len(r.Versions) != len(o.proxies) {
		t.Errorf("what was measured where and when is missing: %q %s %+v %v", r.Command, r.Date, r.Machine, r.Versions)
	}
	checkFigures(t, r)
	files := []string{"dataplane.txt", "latency.svg", "rate.svg", "affinity.svg", "established.svg", "requests.svg"}
	for _, name := range files {
		if found, err := filepath.Glob(filepath.Join(output, name)); err != nil || len(found) != 1 {
			t.Errorf("%s: not written (%v)", name, err)
		}
	}
}

// threeRules are static ones that also know the Service with session affinity, as one without.
func threeRules(from, to targets) string {
	return staticRules(from, to) + strings.NewReplacer("table ip static", "table ip third", "dstnat", "dstnat + 1", "-100", "-99").Replace(
		staticRules(targets{tcp: from.affinity, udp: from.udp}, to))
}

// checkFigures checks that TestDataplane measured all figures, and that they are
// plausible.
func checkFigures(t *testing.T, r *result.Result) {
	t.Helper()
	const (
		perCase  = 2 + 4 + 1       // no rules and a static one, two proxies with two numbers of Services, a file
		cases    = 2 * 2 * 2       // paths, TCP and UDP, new connections and established flows
		affinity = 2 * 2 * (4 + 1) // paths, known and new clients; proxies and the file
		want     = perCase*cases + affinity
	)
	if len(r.Figures) != want {
		t.Errorf("%d figures, want %d", len(r.Figures), want)
	}
	for _, f := range r.Figures {
		const shortest, longest = 1e-6, 0.1
		if f.N != 2*20 || f.P50 < shortest || f.P90 > longest || f.P50 > f.P90 || f.ToStatic == nil {
			t.Errorf("%s, %s: %+v", f.Variant, f.Case, f)
		}
		if (f.ToPlain != nil) != f.Affinity() {
			t.Errorf("%s, %s: compared with what has no affinity: %v", f.Variant, f.Case, f.ToPlain)
		}
		if f.Traffic != result.NewClient && (f.PerSecond == nil || f.PerSecond.Low < 100) {
			t.Errorf("%s, %s: %+v per second", f.Variant, f.Case, f.PerSecond)
		}
	}
}
