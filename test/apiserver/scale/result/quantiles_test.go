package result

import (
	"testing"
	"time"
)

func TestQuantilesOf(t *testing.T) {
	var hundred []time.Duration
	for i := 100; i > 0; i-- {
		hundred = append(hundred, time.Duration(i)*time.Second)
	}
	for _, c := range []struct {
		name   string
		sample []time.Duration
		want   Quantiles
	}{
		{"nothing", nil, Quantiles{}},
		{"one", hundred[:1], Quantiles{1, 100, 100, 100}},
		{"two", hundred[:2], Quantiles{2, 99, 100, 100}},
		{"a hundred", hundred, Quantiles{100, 50, 99, 100}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := QuantilesOf(c.sample); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
	if all := Percentiles(hundred); all[0] != 1 || all[50] != 50 || all[100] != 100 {
		t.Errorf("percentiles %v", all)
	}
}

func TestNumbersForPeople(t *testing.T) {
	for want, got := range map[string]string{
		"0": seconds(0), "5 µs": seconds(5e-6), "1.23 ms": seconds(0.0012345), "-1.5 ms": seconds(-0.0015), "12.3 s": seconds(12.345),
		"0 B": bytes(0), "999 B": bytes(999), "1.5 kB": bytes(1500), "2.0 MB": bytes(2e6), "-2.0 MB": bytes(-2e6),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
