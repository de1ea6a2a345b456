package tour

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
)

// at is so many milliseconds after some time.
func at(ms int) time.Time { return time.UnixMilli(1_000_000 + int64(ms)) }

// answered is an attempt that took a millisecond; refused and lost are as well.
func answered(line, ms int, server string) attempt {
	return attempt{line: line, start: at(ms), end: at(ms + 1), outcome: lab.Answered, server: server}
}

func refused(line, ms int) attempt {
	return attempt{line: line, start: at(ms), end: at(ms + 1), outcome: lab.Refused}
}

func lost(line, ms int) attempt {
	return attempt{line: line, start: at(ms), end: at(ms + 1), outcome: lab.TimedOut}
}

func TestInForce(t *testing.T) {
	up := change{at: at(10), before: []string{"a"}, after: []string{"a", "b"}}
	down := change{at: at(10), before: []string{"a", "b"}, after: []string{"a"}}
	zero := change{at: at(10), before: []string{"a"}}
	back := change{at: at(10), after: []string{"a"}}
	swap := change{at: at(10), before: []string{"a"}, after: []string{"b"}}
	calm := func(line, ms int) []attempt { return slices.Repeat([]attempt{answered(line, ms, "a")}, quiet) }
	for _, test := range []struct {
		name     string
		change   change
		attempts []attempt
		want     []time.Time // by line; nil: not complete
	}{
		{"nothing yet", up, nil, nil},
		{"only one line", up, []attempt{answered(0, 20, "b")}, nil},
		{"the first of each line counts", up, []attempt{
			answered(0, 20, "b"), answered(1, 21, "a"), answered(1, 30, "b"), answered(0, 40, "b"),
		}, []time.Time{at(21), at(31)}},
		{"what was before does not count", up, []attempt{answered(0, 5, "b"), answered(1, 20, "b")}, nil},
		{"to zero", zero, []attempt{answered(0, 20, "a"), refused(0, 25), refused(1, 26)}, []time.Time{at(26), at(27)}},
		{"lost is not refused", zero, []attempt{lost(0, 25), refused(1, 26)}, nil},
		{"back", back, []attempt{refused(0, 20), answered(0, 25, "a"), answered(1, 26, "a")}, []time.Time{at(26), at(27)}},
		{"others take over", swap, []attempt{answered(0, 25, "b"), answered(1, 26, "b")}, []time.Time{at(26), at(27)}},
		{"down", down, slices.Concat([]attempt{answered(0, 20, "b"), answered(1, 22, "b")}, calm(0, 30), calm(1, 40)),
			[]time.Time{at(31), at(41)}},
		{"down, never seen since", down, slices.Concat(calm(0, 30), calm(1, 40)), []time.Time{at(31), at(41)}},
		{"down, not calm yet", down, slices.Concat(calm(0, 30), []attempt{answered(0, 50, "b")}, calm(1, 40)), nil},
		{"down, again", down, slices.Concat(calm(0, 30), calm(1, 40), []attempt{answered(0, 50, "b")}, calm(0, 60)),
			[]time.Time{at(61), at(41)}},
	} {
		when, complete := test.change.inForce(2, test.attempts)
		if complete != (test.want != nil) || complete && !reflect.DeepEqual(when, test.want) {
			t.Errorf("%s: %v, complete %v, want %v", test.name, when, complete, test.want)
		}
	}
}

func TestDelay(t *testing.T) {
	c := change{at: at(10)}
	if got := c.delay([]time.Time{at(30), at(70), at(50)}); got != 60*time.Millisecond {
		t.Errorf("got %v, want the longest, 60ms", got)
	}
}
