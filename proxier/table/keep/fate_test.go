package keep

import (
	"fmt"
	"strings"
	"testing"
)

// String returns the fate as in the tables of the tests: `held 1, less`.
func (f fate) String() string {
	instead := [...]string{"wanted", "less", "same", "nothing"}[f.instead]
	switch {
	case f == fate{}:
		return "fine"
	case f.refused && f.failures == 0:
		return "refused, " + instead
	case f.refused:
		return fmt.Sprintf("refused %d, %s", f.failures, instead)
	}
	return fmt.Sprintf("held %d, %s", f.failures, instead)
}

// fates returns all fates that have a name, by name.
func fates() map[string]fate {
	all := map[string]fate{"fine": {}}
	for failures := range maxFailures + 1 {
		for instead := theWanted; instead <= theNothing; instead++ {
			for _, refused := range []bool{true, false} {
				f := fate{refused: refused, instead: instead, failures: failures}
				if refused || failures > 0 && instead != theNothing {
					all[f.String()] = f
				}
			}
		}
	}
	return all
}

// What follows a failure in each state, for transient failures, conflicts and
// failures of content. Nothing else decides about a service port. A rewrite
// begins with the wanted plans of service ports that wait, so it never meets
// some of the states.
func TestFate(t *testing.T) {
	names := []string{"transient", "conflict", "content"}
	kinds := map[string]failure{"transient": failureTransient, "conflict": failureConflict, "content": failureContent}
	for _, tt := range []struct {
		in    phase
		table string
	}{
		{phaseUpdate, `
			fine               | held 1, less       | held 1, less       | refused, less
			held 1, wanted     | held 2, less       | held 2, less       | refused, less
			held 2, wanted     | held 3, less       | held 3, less       | refused, less
			held 3, wanted     | refused, less      | refused, less      | refused, less
			held 1, less       | held 1, same       | held 1, same       | held 1, same
			held 2, less       | held 2, same       | held 2, same       | held 2, same
			held 3, less       | held 3, same       | held 3, same       | held 3, same
			held 1, same       | blameless          | blameless          | blameless
			held 2, same       | blameless          | blameless          | blameless
			held 3, same       | blameless          | blameless          | blameless
			refused, wanted    | refused, less      | refused, less      | refused, less
			refused 1, wanted  | refused 1, less    | refused 1, less    | refused 1, less
			refused 2, wanted  | refused 2, less    | refused 2, less    | refused 2, less
			refused 3, wanted  | refused 3, less    | refused 3, less    | refused 3, less
			refused, less      | refused 1, same    | refused 1, same    | refused, nothing
			refused 1, less    | refused 2, same    | refused 2, same    | refused 1, nothing
			refused 2, less    | refused 3, same    | refused 3, same    | refused 2, nothing
			refused 3, less    | refused 3, nothing | refused 3, nothing | refused 3, nothing
			refused, same      | blameless          | blameless          | blameless
			refused 1, same    | blameless          | blameless          | blameless
			refused 2, same    | blameless          | blameless          | blameless
			refused 3, same    | blameless          | blameless          | blameless
			refused, nothing   | refused 1, same    | refused 1, same    | refused 1, same
			refused 1, nothing | refused 2, same    | refused 2, same    | refused 2, same
			refused 2, nothing | refused 3, same    | refused 3, same    | refused 3, same
			refused 3, nothing | refused 3, same    | refused 3, same    | refused 3, same`},
		{phaseRewrite, `
			fine               | held 1, wanted fail  | held 1, wanted     | refused, less
			held 1, wanted     | refused, less        | refused, less      | refused, less
			held 2, wanted     | refused, less        | refused, less      | refused, less
			held 3, wanted     | refused, less        | refused, less      | refused, less
			held 1, less       | held 2, less fail    | held 2, less       | held 1, nothing
			held 2, less       | held 3, less fail    | held 3, less       | held 2, nothing
			held 3, less       | held 3, nothing      | held 3, nothing    | held 3, nothing
			held 1, same       | blameless            | blameless          | blameless
			held 2, same       | blameless            | blameless          | blameless
			held 3, same       | blameless            | blameless          | blameless
			refused, wanted    | refused, less        | refused, less      | refused, less
			refused 1, wanted  | refused 1, less      | refused 1, less    | refused 1, less
			refused 2, wanted  | refused 2, less      | refused 2, less    | refused 2, less
			refused 3, wanted  | refused 3, less      | refused 3, less    | refused 3, less
			refused, less      | refused 1, less fail | refused 1, less    | refused, nothing
			refused 1, less    | refused 2, less fail | refused 2, less    | refused 1, nothing
			refused 2, less    | refused 3, less fail | refused 3, less    | refused 2, nothing
			refused 3, less    | refused 3, nothing   | refused 3, nothing | refused 3, nothing
			refused, same      | blameless            | blameless          | blameless
			refused 1, same    | blameless            | blameless          | blameless
			refused 2, same    | blameless            | blameless          | blameless
			refused 3, same    | blameless            | blameless          | blameless
			refused, nothing   | blameless            | blameless          | blameless
			refused 1, nothing | blameless            | blameless          | blameless
			refused 2, nothing | blameless            | blameless          | blameless
			refused 3, nothing | blameless            | blameless          | blameless`},
	} {
		left := fates()
		for line := range strings.Lines(strings.TrimSpace(tt.table)) {
			cells := strings.Split(line, "|")
			state := strings.TrimSpace(cells[0])
			f, ok := left[state]
			if delete(left, state); !ok {
				t.Fatalf("no fate %q", state)
			}
			for i, name := range names {
				next, v := f.after(tt.in, kinds[name])
				got := next.String()
				switch {
				case v == blameless && next == f:
					got = "blameless"
				case v == syncFails:
					got += " fail"
				}
				if want := strings.TrimSpace(cells[i+1]); got != want {
					t.Errorf("phase %d: %s, then %s: got %q, want %q", tt.in, state, name, got, want)
				}
			}
		}
		if len(left) > 0 {
			t.Errorf("phase %d: no row for %v", tt.in, left)
		}
	}
}

// Whatever fails, the kernel ends up without the service port, and the number
// of attempts is limited.
func TestFateEnds(t *testing.T) {
	for name, f := range fates() {
		for _, in := range []phase{phaseUpdate, phaseRewrite} {
			for _, kind := range []failure{failureTransient, failureConflict, failureContent} {
				got, v := f, tryAgain
				for range 3 * maxFailures {
					if got, v = got.after(in, kind); v == blameless {
						break
					}
				}
				if v != blameless {
					t.Errorf("%s, phase %d, failure %d: got %s after many attempts", name, in, kind, got)
				}
			}
		}
	}
}

// After a commit, only service ports whose wanted plan was not written have a
// fate. Those that wait for another sync keep the number of failures.
func TestFateCommitted(t *testing.T) {
	for name, f := range fates() {
		want := f
		switch {
		case f.instead == theWanted:
			want = fate{}
		case f.refused && f.instead != theSame:
			want.failures = 0
		}
		if got := f.committed(); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		wait := !f.refused || f.instead == theSame
		if got := f.committed().waits(); f.instead != theWanted && got != wait {
			t.Errorf("%s: waits: got %v, want %v", name, got, wait)
		}
	}
}

// What follows each failure of an attempt, for each meaning that it has for the
// service ports that the error refers to.
func TestAttempt(t *testing.T) {
	kinds := map[string]failure{
		"permission": failurePermission, "unknown": failureUnknown, "foreign": failureForeign, "damage": failureDamage,
		"transient": failureTransient, "conflict": failureConflict, "content": failureContent,
	}
	steps := map[string]step{
		"fail": stepFail, "again": stepAgain, "isolate": stepIsolate, "hold part": stepHoldPart,
		"repair": stepRepair, "rewrite": stepRewrite, "doubt": stepDoubt,
	}
	plain := attempt{}
	third := attempt{failures: maxFailures - 1}
	fourth := attempt{failures: maxFailures}
	heavy := attempt{heavy: true, failures: maxFailures - 1}
	anonymous := attempt{anonymous: true, heavy: true, failures: maxFailures - 1}
	blamed := attempt{blame: tryAgain, anonymous: true, heavy: true, failures: maxFailures - 1}
	fails := attempt{blame: syncFails, anonymous: true}
	for _, tt := range []struct {
		name            string
		attempt         attempt
		update, rewrite string
	}{
		{"permission", blamed, "fail", "fail"},
		{"permission", plain, "fail", "fail"},
		{"unknown", plain, "rewrite", "fail"},
		{"foreign", plain, "fail", "again"},
		{"damage", plain, "repair", ""}, // a rewrite does not verify the table
		{"transient", plain, "fail", "fail"},
		{"transient", third, "rewrite", "fail"},
		{"transient", fourth, "fail", "fail"},
		{"transient", heavy, "hold part", ""},
		{"transient", anonymous, "isolate", "isolate"},
		{"transient", blamed, "again", "again"},
		{"transient", fails, "", "fail"},
		{"conflict", plain, "doubt", "again"},
		{"conflict", third, "doubt", "again"},
		{"conflict", heavy, "doubt", ""},
		{"conflict", anonymous, "isolate", "isolate"},
		{"conflict", blamed, "again", "again"},
		{"conflict", fails, "", "fail"},
		{"content", plain, "doubt", "fail"},
		{"content", third, "doubt", "fail"},
		{"content", heavy, "doubt", ""},
		{"content", anonymous, "isolate", "isolate"},
		{"content", blamed, "again", "again"},
		{"content", fails, "", "fail"},
	} {
		for in, want := range map[phase]string{phaseUpdate: tt.update, phaseRewrite: tt.rewrite} {
			a := tt.attempt
			a.in, a.kind = in, kinds[tt.name]
			if got := a.next(); want != "" && got != steps[want] {
				t.Errorf("%+v (%s): got step %d, want %s", a, tt.name, got, want)
			}
		}
	}
}
