package calm

import (
	"testing"
	"time"
)

// TestState asks for the next work while signs of life come and go.
func TestState(t *testing.T) {
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	s := New(start)
	next := func(d time.Duration) time.Duration {
		return s.Next(at(d), at(d), 50*time.Millisecond, 3*time.Second).Sub(start)
	}
	for _, step := range []struct {
		name      string
		at        time.Duration
		disturbed bool
		want      time.Duration
	}{
		{"the start", 0, false, 50 * time.Millisecond},
		{"the end of the first minute", Delay - 1, false, Delay - 1 + 50*time.Millisecond},
		{"calm", Delay, false, Delay + 3*time.Second},
		{"calm, after a beat", Delay + 10*time.Millisecond, false, Delay + 3*time.Second},
		{"calm, before a beat", Delay + 490*time.Millisecond, false, Delay + 3*time.Second},
		{"a sign of life", 2 * Delay, true, 2*Delay + 50*time.Millisecond},
		{"another one", 3*Delay - 1, true, 3*Delay - 1 + 50*time.Millisecond},
		{"a minute after the first one", 3 * Delay, false, 3*Delay + 50*time.Millisecond},
		{"a minute after the second one", 4*Delay - 1, false, 4*Delay + 2500*time.Millisecond},
	} {
		if step.disturbed {
			s.Disturb(at(step.at))
		}
		if got := next(step.at); got != step.want {
			t.Errorf("%s: next work at %s, want %s", step.name, got, step.want)
		}
	}
}

// Work whose period is shorter than a beat is done at each beat, and no work is
// due at once.
func TestBeats(t *testing.T) {
	start := time.Now()
	s := New(start)
	for _, d := range []time.Duration{0, 1, Beat / 2, Beat - 1} {
		now := start.Add(Delay + d)
		if got, want := s.Next(now, now, time.Millisecond, time.Millisecond), start.Add(Delay+Beat); !got.Equal(want) {
			t.Errorf("%s after a beat: got %s, want %s", d, got.Sub(start), want.Sub(start))
		}
	}
}

// Each listener hears of the first sign of life in calm, and of no other.
func TestDisturbed(t *testing.T) {
	start := time.Now()
	s := New(start)
	listeners := []<-chan struct{}{s.Disturbed(), s.Disturbed()}
	for _, step := range []struct {
		at   time.Duration
		want int
	}{{Delay - 1, 0}, {2 * Delay, 1}, {2*Delay + 1, 0}, {4 * Delay, 1}} {
		s.Disturb(start.Add(step.at))
		for i, l := range listeners {
			if got := len(l); got != step.want {
				t.Errorf("after %s: listener %d has %d signs, want %d", step.at, i, got, step.want)
			}
			if len(l) > 0 {
				<-l
			}
		}
	}
	s.Disturb(start.Add(6 * Delay))
	s.Disturb(start.Add(8 * Delay)) // no listener has noticed the last one
}
