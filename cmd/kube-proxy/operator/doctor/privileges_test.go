package doctor

import (
	"testing"

	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// Without privileges only the check of the kernel fails. The others do not
// claim that something is wrong with the rules.
func TestWithoutPrivileges(t *testing.T) {
	var r *Report
	nstest.Unprivileged(t, func() { r = Run(t.Context(), Config{}) })
	for _, f := range r.Findings {
		switch want := map[string]Result{"kernel": Fail, "kernel-features": Skipped, "table": Skipped}[f.Check]; want {
		case "", f.Result:
		default:
			t.Errorf("%s: got %s: %s, want %s", f.Check, f.Result, f.Reason, want)
		}
	}
}
