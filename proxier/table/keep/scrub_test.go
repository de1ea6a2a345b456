package keep

import (
	"testing"
	"time"
)

// The scrubber makes up for verifications, but does not stop for them.
func TestScrubPause(t *testing.T) {
	limits := DefaultLimits()
	const ms = time.Millisecond
	for _, tt := range []struct{ verified, want time.Duration }{{0, 250 * ms}, {ms, 500 * ms}, {20 * ms, 1000 * ms}} {
		s := scrubber{checked: tt.verified}
		if got := s.pause(ms, &limits); got != tt.want {
			t.Errorf("after verifications of %v: got %v, want %v", tt.verified, got, tt.want)
		}
	}
}
