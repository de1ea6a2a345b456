package result

import (
	"slices"
	"testing"
	"time"
)

// micros returns latencies.
func micros(all ...int) (out []time.Duration) {
	for _, n := range all {
		out = append(out, time.Duration(n)*time.Microsecond)
	}
	return out
}

func TestFiguresOf(t *testing.T) {
	static, proxy := Variant{Rules: Static}, Variant{Rules: Product, Services: 100}
	tcp, udp := Case{FromPod, TCP}, Case{FromPod, UDP}
	known, established := Case{FromPod, KnownClient}, Case{FromPod, EstablishedTCP}
	rounds := []Round{
		{
			{proxy, known, 0, micros(40, 44, 48), 0},
			{proxy, tcp, 1, micros(24, 24, 90), 2000}, {proxy, tcp, 0, micros(22, 22, 22), 1000},
			{static, tcp, 0, micros(20, 20, 80), 3000},
			{proxy, udp, 0, micros(7), 5},
			{static, established, 0, micros(5), 8000}, {proxy, established, 0, micros(6), 6000},
		},
		{ // a busy moment: everything takes twice as long
			{static, tcp, 0, micros(40, 40, 40), 1500},
			{proxy, tcp, 0, micros(44, 44, 44), 500}, {proxy, tcp, 1, micros(44, 48, 48), 1000},
			{proxy, known, 0, micros(96, 88, 80), 0},
			{proxy, udp, 0, micros(7), 5},
			{static, established, 0, micros(10), 4000}, {proxy, established, 0, micros(12), 3000},
		},
	}
	got := FiguresOf(rounds)
	want := []*Figure{
		{
			Variant: static, Case: tcp, Instances: 1, Rounds: 2, N: 6, P50: 40e-6, P90: 80e-6,
			OfRounds: Spread{20e-6, 20e-6, 40e-6}, OfInstances: Spread{40e-6, 40e-6, 40e-6}, ToStatic: &Ratio{1, 1, 1},
			PerSecond: &Spread{1500, 1500, 3000}, PerSecondToStatic: &Ratio{1, 1, 1},
		},
		{
			Variant: proxy, Case: tcp, Instances: 2, Rounds: 2, N: 12, P50: 44e-6, P90: 48e-6,
			OfRounds: Spread{22e-6, 22e-6, 44e-6}, OfInstances: Spread{22e-6, 22e-6, 44e-6}, ToStatic: &Ratio{1.1, 1.1, 1.1},
			PerSecond: &Spread{500, 1000, 2000}, PerSecondToStatic: &Ratio{0.5, 0.5, 0.5},
		},
		{
			Variant: proxy, Case: udp, Instances: 1, Rounds: 2, N: 2, P50: 7e-6, P90: 7e-6,
			OfRounds: Spread{7e-6, 7e-6, 7e-6}, OfInstances: Spread{7e-6, 7e-6, 7e-6}, PerSecond: &Spread{5, 5, 5},
		},
		{
			Variant: proxy, Case: known, Instances: 1, Rounds: 2, N: 6, P50: 48e-6, P90: 96e-6,
			OfRounds: Spread{44e-6, 44e-6, 88e-6}, OfInstances: Spread{48e-6, 48e-6, 48e-6}, ToStatic: &Ratio{2.2, 2.2, 2.2},
			ToPlain: &Ratio{2, 2, 2},
		},
		{
			Variant: static, Case: established, Instances: 1, Rounds: 2, N: 2, P50: 5e-6, P90: 10e-6,
			OfRounds: Spread{5e-6, 5e-6, 10e-6}, OfInstances: Spread{5e-6, 5e-6, 5e-6}, ToStatic: &Ratio{1, 1, 1},
			PerSecond: &Spread{4000, 4000, 8000}, PerSecondToStatic: &Ratio{1, 1, 1},
		},
		{
			Variant: proxy, Case: established, Instances: 1, Rounds: 2, N: 2, P50: 6e-6, P90: 12e-6,
			OfRounds: Spread{6e-6, 6e-6, 12e-6}, OfInstances: Spread{6e-6, 6e-6, 6e-6}, ToStatic: &Ratio{1.2, 1.2, 1.2},
			PerSecond: &Spread{3000, 3000, 6000}, PerSecondToStatic: &Ratio{0.75, 0.75, 0.75},
		},
	}
	if len(got) != len(want) {
		t.Fatalf("%d figures, want %d", len(got), len(want))
	}
	for i, f := range got {
		compareFigures(t, f, want[i])
	}
}

func TestFiguresInOrder(t *testing.T) {
	tcp := Case{FromNode, TCP}
	want := []key{
		{Variant{Rules: None}, tcp}, {Variant{Rules: Static}, tcp}, {Variant{Rules: "a file"}, tcp}, {Variant{Rules: "b file"}, tcp},
		{Variant{Upstream, 100}, tcp}, {Variant{Product, 100}, tcp}, {Variant{Upstream, 10_000}, tcp}, {Variant{Product, 10_000}, tcp},
		{Variant{Rules: None}, Case{FromNode, UDP}}, {Variant{Product, 100}, Case{FromNode, KnownClient}},
		{Variant{Rules: None}, Case{FromNode, EstablishedTCP}}, {Variant{Rules: None}, Case{FromNode, EstablishedUDP}},
		{Variant{Rules: None}, Case{FromPod, TCP}},
	}
	var round Round
	for _, k := range want {
		round = append(round, Sample{Variant: k.Variant, Case: k.Case, Latencies: micros(1)})
	}
	for i, f := range FiguresOf([]Round{round}) {
		if got := (key{f.Variant, f.Case}); got != want[i] {
			t.Errorf("figure %d is that of %s, %s, want %s, %s", i, got.Variant, got.Case, want[i].Variant, want[i].Case)
		}
	}
}

// compareFigures wants two figures to be the same, but for what comes of calculating with binary fractions.
func compareFigures(t *testing.T, got, want *Figure) {
	t.Helper()
	if got.Variant != want.Variant || got.Case != want.Case || got.Instances != want.Instances || got.Rounds != want.Rounds || got.N != want.N {
		t.Errorf("%+v, want %+v", got, want)
	}
	a, b := numbers(got), numbers(want)
	if !slices.EqualFunc(a, b, near) {
		t.Errorf("%s, %s: %v, want %v", got.Variant, got.Case, a, b)
	}
}

func numbers(f *Figure) []float64 {
	out := []float64{f.P50, f.P90, f.OfRounds.Low, f.OfRounds.Median, f.OfRounds.High, f.OfInstances.Low, f.OfInstances.Median, f.OfInstances.High}
	for _, r := range []*Ratio{f.ToStatic, f.ToPlain, f.PerSecondToStatic} {
		if r == nil {
			r = &Ratio{-1, -1, -1}
		}
		out = append(out, r.Median, r.Low, r.High)
	}
	if f.PerSecond != nil {
		out = append(out, f.PerSecond.Low, f.PerSecond.Median, f.PerSecond.High)
	}
	return out
}
