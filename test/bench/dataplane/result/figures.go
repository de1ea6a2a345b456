package result

import (
	"cmp"
	"slices"
	"strings"
)

// key is a row of the table.
type key struct {
	Variant
	Case
}

// series is what was measured for a row.
type series struct {
	rounds     []float64         // p50 of each
	rates      []float64         // mean rate of each
	all        []float64         // latencies
	byInstance map[int][]float64 // latencies
	every      []float64         // rates
}

// FiguresOf computes the figures from samples. Every round has the same variants and cases.
func FiguresOf(rounds []Round) []*Figure {
	collected := map[key]*series{}
	for _, round := range rounds {
		for k, samples := range byKey(round) {
			if collected[k] == nil {
				collected[k] = &series{byInstance: map[int][]float64{}}
			}
			collected[k].add(samples)
		}
	}
	var out []*Figure
	for k, s := range collected {
		f := s.figure(k)
		f.compare(s, collected)
		out = append(out, f)
	}
	slices.SortFunc(out, inOrder)
	return out
}

func byKey(round Round) map[key][]Sample {
	out := map[key][]Sample{}
	for _, sample := range round {
		k := key{sample.Variant, sample.Case}
		out[k] = append(out[k], sample)
	}
	return out
}

// add adds a round's samples of all instances.
func (s *series) add(samples []Sample) {
	var round []float64
	var rate float64
	for _, sample := range samples {
		for _, latency := range sample.Latencies {
			round = append(round, latency.Seconds())
			s.byInstance[sample.Instance] = append(s.byInstance[sample.Instance], latency.Seconds())
		}
		if sample.PerSecond > 0 {
			s.every = append(s.every, sample.PerSecond)
			rate += sample.PerSecond / float64(len(samples))
		}
	}
	s.all = append(s.all, round...)
	slices.Sort(round)
	s.rounds = append(s.rounds, quantile(round, 0.5))
	if rate > 0 {
		s.rates = append(s.rates, rate)
	}
}

func (s *series) figure(k key) *Figure {
	slices.Sort(s.all)
	f := &Figure{
		Variant: k.Variant, Case: k.Case, Instances: len(s.byInstance), Rounds: len(s.rounds), N: len(s.all),
		P50: quantile(s.all, 0.5), P90: quantile(s.all, 0.9), OfRounds: SpreadOf(s.rounds),
	}
	var instances []float64
	for _, latencies := range s.byInstance {
		slices.Sort(latencies)
		instances = append(instances, quantile(latencies, 0.5))
	}
	f.OfInstances = SpreadOf(instances)
	if len(s.every) > 0 {
		spread := SpreadOf(s.every)
		f.PerSecond = &spread
	}
	return f
}

// compare compares the row with the row of the static rule and with that of the
// same rules without session affinity.
func (f *Figure) compare(s *series, collected map[key]*series) {
	plain := f.Case
	if f.Affinity() {
		plain.Traffic = TCP
	}
	if static := collected[key{Variant{Rules: Static}, plain}]; static != nil {
		f.ToStatic = RatioOf(s.rounds, static.rounds)
		f.PerSecondToStatic = RatioOf(s.rates, static.rates)
	}
	if own := collected[key{f.Variant, plain}]; own != nil && plain != f.Case {
		f.ToPlain = RatioOf(s.rounds, own.rounds)
	}
}

// inOrder sorts figures as they are shown: by case, number of Services and rules.
func inOrder(a, b *Figure) int {
	cases, rules := Cases(), []string{Product, Upstream, Static, None} // those of files have no place: they come last
	return cmp.Or(
		slices.Index(cases, a.Case)-slices.Index(cases, b.Case),
		a.Services-b.Services,
		slices.Index(rules, b.Rules)-slices.Index(rules, a.Rules),
		strings.Compare(a.Rules, b.Rules))
}
