package answer

import (
	"errors"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// A comparison covers the tables of both families, and continues in the family
// of its cursor.
func TestDiff(t *testing.T) {
	tabletest.NewNamespace(t)
	a, p := newAnswers(t, nft.IPv4, nft.IPv6)
	p.setUp(t)
	tabletest.PassSample(p)
	tabletest.Sync(t, p)
	tabletest.LoadNFT(t, `delete element ip kube-proxy service-targets { 10.96.0.10 . tcp . 80 . 0:2 }
		add chain ip6 kube-proxy other`)
	first, last := diffAll(t, a, ""), keep.DiffStep{}
	for i, step := range first {
		if step.Rows < last.Rows || step.Done != (i == len(first)-1) {
			t.Errorf("step %d: got %d rows after %d, done %v", i, step.Rows, last.Rows, step.Done)
		}
		last = step
	}
	if last.Rows < last.AllRows || last.AllRows == 0 {
		t.Errorf("got %d of %d rows", last.Rows, last.AllRows)
	}
	want := "IPv4 missing row service-targets 10.96.0.10 . tcp . 80 . 0:2 : 10.244.2.5 . 8080 default/web:http\n" +
		"IPv6 extra chain other\n"
	if got := differencesOf(first); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := differencesOf(diffAll(t, a, "IPv4:default/web")), "IPv6 extra chain other\n"; got != want {
		t.Errorf("after the Service with a difference: got %s, want %s", got, want)
	}
	if got := differencesOf(diffAll(t, a, last.Cursor)); got != "" {
		t.Errorf("after the end: got %s", got)
	}
	for _, cursor := range []string{"x", "IPv4", "IPv5:default/web"} {
		if err := a.diff(t.Context(), cursor, nil); err == nil || !strings.Contains(err.Error(), "is not a cursor") {
			t.Errorf("cursor %q: got error %v", cursor, err)
		}
	}
	stop := errors.New("stop")
	if err := a.diff(t.Context(), "", func(*keep.DiffStep) error { return stop }); err != stop {
		t.Errorf("got error %v of a callback, want the same", err)
	}
}

// diffAll returns the steps of a comparison.
func diffAll(t *testing.T, a *Answers, after string) (steps []keep.DiffStep) {
	t.Helper()
	err := a.diff(t.Context(), after, func(s *keep.DiffStep) error {
		steps = append(steps, *s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

// differencesOf returns the differences of steps, one per line.
func differencesOf(steps []keep.DiffStep) (text string) {
	for _, s := range steps {
		for _, d := range s.Differences {
			line := strings.Join([]string{d.Family.Name(), string(d.Kind), d.Object, d.Owner}, " ")
			text += strings.TrimSpace(line) + "\n"
		}
	}
	return text
}
