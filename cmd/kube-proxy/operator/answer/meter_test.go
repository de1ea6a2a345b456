package answer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/tabletest"
)

// All clients that ask at the same time get the snapshot of one walk. A client
// that gives up does not disturb others. The meter forgets.
func TestMeter(t *testing.T) {
	tabletest.NewNode(t)
	m, err := newMeter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	var walks atomic.Int32
	name := func(_ context.Context, n *count) (*measure, error) {
		walks.Add(1)
		s := new(measure)
		s.Time, s.Seconds = n.Time, n.Since.Seconds()
		return s, nil
	}
	ask := func() {
		t.Helper()
		walks.Store(0)
		canceled, stop := context.WithCancel(t.Context())
		stop()
		var clients sync.WaitGroup
		for range 5 {
			clients.Go(func() {
				if s, err := m.next(t.Context(), name); err != nil || s.Seconds < minMeterPeriod.Seconds() {
					t.Errorf("got %+v, %v, want the numbers of a period", s, err)
				}
				if _, err := m.next(canceled, name); !errors.Is(err, context.Canceled) {
					t.Errorf("got error %v for a client that gave up", err)
				}
			})
		}
		clients.Wait()
		if got := walks.Load(); got != 1 {
			t.Errorf("got %d snapshots for clients that ask at the same time, want 1", got)
		}
	}
	ask()
	ask()
	m.forget()
	if m.last != nil || m.began {
		t.Error("the meter does not forget")
	}
	ask()
}

// The period is so long that walks take less than 5 % of a core.
func TestMeterPeriod(t *testing.T) {
	for cost, want := range map[time.Duration]time.Duration{
		0: time.Second, 10 * time.Millisecond: time.Second, 100 * time.Millisecond: 2500 * time.Millisecond,
	} {
		if got := meterPeriod(cost); got != want {
			t.Errorf("%v: got %v, want %v", cost, got, want)
		}
	}
}
