package kernel

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// The kernel of the test has nft_hash. The probe leaves no trace.
func TestCheckHash(t *testing.T) {
	nstest.New(t).Do(func() {
		conn, err := nft.Open()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		before, err := conn.Generation()
		if err != nil {
			t.Error(err)
		}
		if err := CheckHash(); err != nil {
			t.Errorf("got %v, want no error", err)
		}
		if err := CheckTimeouts(); err != nil {
			t.Errorf("timeouts: got %v, want no error", err)
		}
		if after, err := conn.Generation(); err != nil || after != before {
			t.Errorf("got generation %d, %v; want %d as before the probe", after, err, before)
		}
	})
}

// A kernel without an expression refuses the rule with ENOENT. Other errors do
// not mean that the kernel has no nft_hash.
func TestExplainHash(t *testing.T) {
	problem := func(object string, errno unix.Errno) nft.Problem {
		return nft.Problem{Object: object, Errno: errno}
	}
	aborted := problem(absent, unix.ENOENT)
	for name, tt := range map[string]struct {
		answer        error
		ok, isMissing bool
	}{
		"aborted": {&nft.CommitError{Problems: []nft.Problem{aborted}}, true, false},
		"refused": {
			&nft.CommitError{Problems: []nft.Problem{problem("hash", unix.ENOENT), aborted}}, false, true,
		},
		"no memory": {
			&nft.CommitError{Problems: []nft.Problem{problem("hash", unix.ENOMEM), aborted}}, false, false,
		},
		"committed": {nil, false, false},
		"no answer": {unix.EPERM, false, false},
	} {
		refused, answer := refusals(tt.answer)
		err := explainHash(refused, answer)
		if (err == nil) != tt.ok || errors.Is(err, ErrNoHash) != tt.isMissing {
			t.Errorf("%s: got %v, want success %v, missing %v", name, err, tt.ok, tt.isMissing)
		}
		err = explainTimeouts(refused, answer)
		if (err == nil) != tt.ok || errors.Is(err, ErrNoTimeouts) != tt.isMissing {
			t.Errorf("timeouts: %s: got %v, want success %v, missing %v", name, err, tt.ok, tt.isMissing)
		}
	}
}
