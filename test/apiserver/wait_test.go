package apiserver

import (
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// Time limits of the tests. They are not requirements of the subject.
const (
	// patience limits the wait for an effect. Clients of the API wait up to a
	// minute between two attempts.
	patience = 3 * time.Minute
	// answerTimeout is the timeout of an attempt that must be answered.
	answerTimeout = 10 * time.Second
	// shortly is the timeout of an attempt whose outcome may change, or that
	// must be dropped.
	shortly = 400 * time.Millisecond
)

// eventually calls check until it returns nil.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	labtest.Eventually(t, patience, what, check)
}
