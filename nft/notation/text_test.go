package notation

import (
	"testing"
	"time"
)

func TestDurationText(t *testing.T) {
	tests := []struct {
		d    time.Duration
		want string
	}{
		{0, "0s"},
		{time.Millisecond, "1ms"},
		{time.Millisecond - 1, "0s"},
		{time.Second, "1s"},
		{90 * time.Second, "1m30s"},
		{3 * time.Hour, "3h"},
		{10800*time.Second + 5*time.Millisecond, "3h5ms"},
		{24 * time.Hour, "1d"},
		{26*time.Hour + 3*time.Minute + 4*time.Second + 5*time.Millisecond, "1d2h3m4s5ms"},
		{366 * 24 * time.Hour, "366d"},
	}
	for _, tt := range tests {
		if got := durationText(tt.d); got != tt.want {
			t.Errorf("%d ns: got %s, want %s", tt.d, got, tt.want)
		}
	}
}

func TestQuote(t *testing.T) {
	if got, want := Quote("a b"), `"a b"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
