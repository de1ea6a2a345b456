package manifest

import (
	"errors"
	"slices"
	"time"
)

// Reload makes Run read the directory at once and log all its problems, also
// those that it logged before. It does not wait. Any goroutine can call it.
func (s *Source) Reload() {
	select {
	case s.reload <- struct{}{}:
	default: // Run has not yet taken the previous one
	}
}

// readAgain reads the directory, delivers the changes and logs all problems.
func (s *Source) readAgain() {
	before := s.Status().Problems
	s.refresh()
	status := s.Status()
	s.logger.Info("Read manifest directory again", "dir", status.Dir, "files", status.Files,
		"objects", status.Objects, "problems", status.ProblemCount)
	for _, p := range status.Problems {
		if slices.Contains(before, p) { // otherwise refresh has logged it
			s.logger.Error(errors.New(p.Text), "Manifest problem still exists", "since", p.Since.Format(time.RFC3339))
		}
	}
}
