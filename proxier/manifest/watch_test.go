package manifest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestSettle(t *testing.T) {
	tests := []struct {
		name    string
		changes int           // after the first one
		every   time.Duration // between two of them
		want    time.Duration
	}{
		{name: "one change", want: quiet},
		{name: "a burst", changes: 4, every: 50 * time.Millisecond, want: 4*50*time.Millisecond + quiet},
		{name: "no end", changes: 1000, every: 50 * time.Millisecond, want: limit},
		{name: "two changes apart", changes: 1, every: quiet + time.Millisecond, want: quiet},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				changed := make(chan struct{}, 1)
				go func() {
					for range test.changes {
						select {
						case <-ctx.Done():
							return
						case <-time.After(test.every):
							changed <- struct{}{}
						}
					}
				}()
				begin := time.Now()
				settle(ctx, changed)
				// The clock is synctest's: nothing here depends on the machine.
				if got := time.Since(begin); got != test.want {
					t.Errorf("settled after %v, want %v", got, test.want)
				}
			})
		})
	}
}

func TestSettleEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin := time.Now()
		settle(ctx, make(chan struct{}))
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("waited %v for a context that is done", waited)
		}
	})
}
