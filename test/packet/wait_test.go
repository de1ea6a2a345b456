package packet

import (
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// Time limits of the tests. They are not requirements of the product.
const (
	// patience limits the wait for an effect.
	patience = 2 * time.Minute
	// subjectPatience is patience with a subject, which may fail.
	subjectPatience = 40 * time.Second
	// answerTimeout is the timeout of an attempt that must be answered.
	answerTimeout = 10 * time.Second
	// refusalTimeout is the timeout of an attempt that must be refused. It is
	// less than the second after which a TCP client repeats its first packet,
	// which can hide a lost refusal. A slow machine gets refusalAttempts.
	refusalTimeout  = 900 * time.Millisecond
	refusalAttempts = 4
	// subjectRefusalTimeout leaves time for two more first packets. A subject
	// may refuse with ICMP, which the kernel drops while an IPv6 socket of the
	// same machine connects.
	subjectRefusalTimeout = 3500 * time.Millisecond
	// silence is the timeout of an attempt that must be dropped.
	silence = 400 * time.Millisecond
)

// eventually calls check until it returns nil.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	limit := patience
	if subject() != "" {
		limit = subjectPatience
	}
	labtest.Eventually(t, limit, what, check)
}
