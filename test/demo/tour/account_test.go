package tour

import (
	"reflect"
	"testing"
	"time"
)

func TestAccountOf(t *testing.T) {
	attempts := []attempt{
		answered(0, 9, "z"), answered(0, 10, "b"), answered(1, 11, "a"), refused(1, 12), lost(0, 13), answered(0, 19, "b"), lost(0, 20),
	}
	want := account{attempts: 5, answered: 3, refused: 1, lost: 1, servers: []string{"a", "b"}}
	if got := accountOf(attempts, between(at(10), at(20))); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestGap(t *testing.T) {
	g := gap{from: at(10), until: []time.Time{at(20), at(30)}}
	for _, test := range []struct {
		attempt attempt
		want    bool
	}{
		{refused(0, 5), false},
		{refused(0, 9), true}, // ends when it begins
		{refused(0, 15), true},
		{refused(0, 20), true},
		{refused(0, 21), false},
		{refused(1, 21), true},
		{refused(1, 31), false},
	} {
		if got := g.excuses(test.attempt); got != test.want {
			t.Errorf("line %d at %v: %v", test.attempt.line, test.attempt.start, got)
		}
	}
	if (gap{}).excuses(refused(0, 15)) {
		t.Error("a gap that is none excuses something")
	}
}

func TestOutage(t *testing.T) {
	inForce := []time.Time{at(40)}
	steps := []step{
		{change: change{at: at(10), after: []string{"a"}}},
		{change: change{at: at(20), before: []string{"a"}}},
		{change: change{at: at(30), after: []string{"a"}}, inForce: inForce},
	}
	if got := outage(steps); got.from != at(20) || !reflect.DeepEqual(got.until, inForce) {
		t.Errorf("got %+v", got)
	}
}

func TestRepaired(t *testing.T) {
	attempts := []attempt{answered(0, 5, "a"), answered(1, 12, "a"), lost(0, 13), answered(0, 20, "a"), answered(0, 25, "a")}
	if when, complete := repaired(2, at(10), attempts); !complete || when[0] != at(21) || when[1] != at(13) {
		t.Errorf("%v, complete %v", when, complete)
	}
	if _, complete := repaired(2, at(15), attempts); complete {
		t.Error("complete without an answer on line 1")
	}
}
