package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/test/apiserver/dataplane/result"
	"github.com/nftproxy/nftproxy/test/apiserver/scale/observe"
	scale "github.com/nftproxy/nftproxy/test/apiserver/scale/result"
	"github.com/nftproxy/nftproxy/test/apiserver/scale/stage"
)

// measure runs the whole benchmark.
func (o *options) measure(ctx context.Context) (out *result.Result, err error) {
	out = &result.Result{Command: o.command, Date: time.Now().UTC().Truncate(time.Second), Endpoints: o.endpoints, Affinity: o.affinity}
	if out.Machine, err = scale.ThisMachine(); err != nil {
		return nil, err
	}
	if out.Versions, err = o.programs.Versions(o.proxies); err != nil {
		return nil, err
	}
	s, err := stage.New(ctx, stage.Config{Name: "dataplane", Programs: o.programs.Folder})
	if err != nil {
		return nil, err
	}
	defer func() {
		if closing := s.Close(); closing != nil {
			err = errors.Join(err, fmt.Errorf("clean up: %w", closing))
		}
	}()
	subjects, err := o.prepare(ctx, s)
	if err != nil {
		return nil, err
	}
	const calm = 30 * time.Second                           // the longest time to wait for the machine to be idle
	if _, err := observe.AwaitCalm(ctx, calm); err != nil { // the load average tells of it
		return nil, err
	}
	if out.Load, err = scale.LoadAverage(); err != nil {
		return nil, err
	}
	rounds, err := o.measureRounds(ctx, subjects)
	if err != nil {
		return nil, err
	}
	out.Figures = result.FiguresOf(rounds)
	return out, nil
}

// measureRounds measures all subjects in every round.
func (o *options) measureRounds(ctx context.Context, subjects []*subject) ([]result.Round, error) {
	// A collection of garbage would stop clients; there is one after every case.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, one := range subjects {
		if err := one.introduce(); err != nil {
			return nil, fmt.Errorf("%s: %w", one.variant, err)
		}
	}
	began := time.Now()
	var rounds []result.Round
	for i := range o.rounds {
		round, err := o.measureRound(ctx, subjects)
		if err != nil {
			return nil, fmt.Errorf("round %d: %w", i+1, err)
		}
		rounds = append(rounds, round)
		if i == 0 {
			o.say("a round of %d takes %.1f s", o.rounds, time.Since(began).Seconds())
		}
	}
	o.say("%d rounds took %.0f s", o.rounds, time.Since(began).Seconds())
	return rounds, nil
}

// introduce makes the known clients known.
func (s *subject) introduce() error {
	for _, path := range result.Paths() {
		if c := (result.Case{Path: path, Traffic: result.KnownClient}); s.has(c) {
			if _, err := s.task(c, known).latencies(known); err != nil {
				return err
			}
		}
	}
	return nil
}

// measureRound measures every case of every subject once. One case after the other, in all subjects: what is compared is measured within
// seconds.
func (o *options) measureRound(ctx context.Context, subjects []*subject) (result.Round, error) {
	var round result.Round
	for _, c := range shuffled(result.Cases()) {
		runtime.GC()
		for _, one := range shuffled(subjects) {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if !one.has(c) {
				continue
			}
			sample, err := o.measureCase(one, c)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", one.variant, c, err)
			}
			round = append(round, sample)
		}
	}
	return round, nil
}

func (o *options) measureCase(one *subject, c result.Case) (result.Sample, error) {
	out := result.Sample{Variant: one.variant, Instance: one.instance, Case: c}
	var err error
	if out.Latencies, err = one.task(c, o.connections+warmUp).latencies(o.connections); err != nil {
		return out, err
	}
	if c.Traffic != result.NewClient { // there are not enough addresses for these
		out.PerSecond, err = one.task(c, 0).perSecond(o.throughput)
	}
	return out, err
}

// shuffled returns the elements in a random order.
func shuffled[T any](all []T) []T {
	out := slices.Clone(all)
	rand.Shuffle(len(out), func(i, k int) { out[i], out[k] = out[k], out[i] })
	return out
}
