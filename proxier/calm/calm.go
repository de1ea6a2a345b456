// Package calm decides how often periodic work is done. A node on which nothing
// happens is calm: its work is rare, and different work shares wake-ups, which
// cost more than the work itself. A sign of life makes it alert for a minute.
//
// The package performs no I/O and has no clock: the caller passes the time.
package calm

import (
	"sync"
	"time"
)

const (
	// Delay is how long a State stays alert after a sign of life.
	Delay = time.Minute
	// Beat is the time between two wake-ups that work in calm shares.
	Beat = 500 * time.Millisecond
)

// State is calm or alert. Any goroutine can use it.
type State struct {
	start time.Time // of the beats

	mu sync.Mutex // guards the fields below
	// until is the time until which the State is alert.
	until time.Time
	// disturbed are the channels of Disturbed.
	disturbed []chan struct{}
}

// New returns a State that is alert for Delay.
func New(now time.Time) *State { return &State{start: now, until: now.Add(Delay)} }

// Disturb records a sign of life.
func (s *State) Disturb(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isCalm(now) {
		for _, c := range s.disturbed {
			select {
			case c <- struct{}{}:
			default: // the last sign of life was not noticed yet
			}
		}
	}
	s.until = now.Add(Delay)
}

// Disturbed returns a new channel, which gets an element with the first sign of
// life in each calm. Whoever waits for a time of Next must then ask again.
func (s *State) Disturbed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := make(chan struct{}, 1)
	s.disturbed = append(s.disturbed, c)
	return c
}

// Next returns the time of work whose period is alert or calm, after some at
// last. In calm, it is the last beat within the period.
func (s *State) Next(now, last time.Time, alert, calm time.Duration) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isCalm(now) {
		return last.Add(alert)
	}
	next := last.Add(max(calm, Beat))
	return next.Add(-(next.Sub(s.start) % Beat))
}

func (s *State) isCalm(now time.Time) bool { return !now.Before(s.until) }
