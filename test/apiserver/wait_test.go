package apiserver

import (
	"testing"
	"time"
)

// How long things are waited for. None of it is a claim about the subject: a test that gets what it waits for ends as soon as it does.
const (
	// patience is for everything that must happen in the end. Clients of the API wait up to a minute between two attempts.
	patience = 3 * time.Minute
	// pollEvery is the pause between two looks.
	pollEvery = 20 * time.Millisecond
	// answerTimeout is for an attempt that must be answered.
	answerTimeout = 10 * time.Second
	// shortly is for an attempt that may not be answered yet, or no more, and how long no answer must come to what is dropped.
	shortly = 400 * time.Millisecond
)

// eventually looks until there is nothing to complain about.
func eventually(t testing.TB, what string, look func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := look()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(pollEvery)
	}
}
