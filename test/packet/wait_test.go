package packet

import (
	"testing"
	"time"
)

// How long things are waited for. None of it is a claim about the product: a test
// that gets what it waits for ends as soon as it does.
const (
	// patience is for everything that must happen in the end.
	patience = 2 * time.Minute
	// pollEvery is the pause between two looks.
	pollEvery = 10 * time.Millisecond
	// answerTimeout is for an attempt that must be answered.
	answerTimeout = 10 * time.Second
	// refusalTimeout is for an attempt that must be refused at once: less than
	// the second after which a TCP client repeats its first packet, and with it learns
	// what it was told before. A slow machine gets refusalAttempts.
	refusalTimeout  = 900 * time.Millisecond
	refusalAttempts = 4
	// silence is how long no answer must come to what is dropped.
	silence = 400 * time.Millisecond
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
