package answer

import (
	"context"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/cmd/top"
	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

const (
	// minMeterPeriod is the period of walks. If they cost more, the period is
	// meterShare times their CPU time: at most 5 % of a core, with a reserve
	// for the questions to the tables and for the answers.
	minMeterPeriod = time.Second
	meterShare     = 25
	// meterIdle is the time without a question after which the meter forgets.
	meterIdle = 5 * time.Second
)

// meter walks through connection tracking, and counts refusals, while clients
// ask for snapshots. Otherwise it does nothing and has no memory.
type meter struct {
	counter *conntrack.Counter
	refused *refusals
	turn    chan struct{} // has a value while a question, or Close, uses the rest
	idle    *time.Timer
	began   bool // whether there was a first walk, which only finds what is not new
	walkAt  time.Time
	last    *measure
}

// count is the result of a walk.
type count struct {
	*conntrack.Count
	refused map[conntrack.Pair]int // since the last walk
	unknown error                  // why refusals are not known
}

// measure is a snapshot with all service ports.
type measure struct {
	top.Snapshot
	ports   map[cluster.PortName]*top.ServicePort
	changes map[place]time.Time
}

// place is an endpoint of a service port, or the service port itself.
type place struct {
	cluster.PortName
	endpoint netip.AddrPort
}

func newMeter() (*meter, error) {
	counter, err := conntrack.OpenCounter()
	if err != nil {
		return nil, err
	}
	refused, err := openRefusals()
	if err != nil {
		counter.Close()
		return nil, err
	}
	m := &meter{counter: counter, refused: refused, turn: make(chan struct{}, 1)}
	m.idle = time.AfterFunc(meterIdle, m.forget)
	return m, nil
}

// close waits for the end of a question. Later ones wait for their contexts.
func (m *meter) close() {
	m.turn <- struct{}{}
	m.idle.Stop()
	m.counter.Close()
	m.refused.close()
}

func (m *meter) forget() {
	select {
	case m.turn <- struct{}{}:
		m.counter.Forget()
		m.refused.end()
		m.began, m.last = false, nil
		<-m.turn
	default: // a question will set the timer again
	}
}

// next returns the snapshot of the next walk. All clients that wait for it get
// the same. name makes it of the result of a walk.
func (m *meter) next(
	ctx context.Context, name func(context.Context, *count) (*measure, error),
) (*measure, error) {
	asked := time.Now()
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() {
		m.idle.Reset(meterIdle)
		<-m.turn
	}()
	if m.last != nil && m.last.Time.After(asked) {
		return m.last, nil
	}
	if !m.began {
		m.last = nil
		m.refused.begin()
		if err := m.walk(ctx, func(*count) error { return nil }); err != nil {
			return nil, err
		}
		m.began = true
	}
	select {
	case <-time.After(time.Until(m.walkAt)):
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	err := m.walk(ctx, func(n *count) (err error) {
		m.last, err = name(ctx, n)
		return err
	})
	return m.last, err
}

// walk counts, and sets the time of the next walk. The cost of use belongs to
// it.
func (m *meter) walk(ctx context.Context, use func(*count) error) error {
	began := time.Now()
	cost, err := keep.ThreadTimeOf(func() error {
		n, err := m.counter.Count(ctx)
		if err == nil {
			refused := m.refused.count()
			err = use(&count{Count: n, refused: refused, unknown: m.refused.err})
		}
		return err
	})
	m.walkAt = began.Add(meterPeriod(cost))
	return err
}

// meterPeriod returns the period of walks with a CPU time.
func meterPeriod(cost time.Duration) time.Duration { return max(minMeterPeriod, cost*meterShare) }
