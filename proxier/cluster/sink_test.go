package cluster

import (
	"errors"
	"testing"
)

// failingSink counts its syncs, which fail.
type failingSink struct {
	Sink
	err   error
	syncs int
}

func (s *failingSink) Sync() error {
	s.syncs++
	return s.err
}

// Sinks syncs every sink, and returns the errors of all.
func TestSinksSyncAll(t *testing.T) {
	a, b := &failingSink{err: errors.New("a")}, &failingSink{err: errors.New("b")}
	err := Sinks{a, b}.Sync()
	if !errors.Is(err, a.err) || !errors.Is(err, b.err) {
		t.Errorf("got error %v, want %v and %v", err, a.err, b.err)
	}
	if a.syncs != 1 || b.syncs != 1 {
		t.Errorf("got %d and %d syncs, want 1 and 1", a.syncs, b.syncs)
	}
}
