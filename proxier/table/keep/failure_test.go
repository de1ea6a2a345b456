package keep

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// String returns the fate as in the tables of the tests: `held 1, remainder`.
func (f fate) String() string {
	instead := [...]string{"wanted", "remainder", "same", "nothing"}[f.instead]
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
	for in, table := range map[phase]string{phaseUpdate: "update", phaseRewrite: "rewrite"} {
		left := fates()
		for _, cells := range ReadTable(t, "fate.txtar", table) {
			state := cells[0]
			f, ok := left[state]
			if delete(left, state); !ok {
				t.Fatalf("no fate %q", state)
			}
			for i, name := range names {
				next, v := f.after(in, kinds[name])
				got := next.String()
				switch {
				case v == blameless && next == f:
					got = "blameless"
				case v == syncFails:
					got += " fail"
				}
				if want := cells[i+1]; got != want {
					t.Errorf("phase %d: %s, then %s: got %q, want %q", in, state, name, got, want)
				}
			}
		}
		if len(left) > 0 {
			t.Errorf("phase %d: no row for %v", in, left)
		}
	}
}

// ReadTable returns the cells of a table in a file of testdata.
func ReadTable(t testing.TB, file, name string) (rows [][]string) {
	t.Helper()
	tables, err := txtar.ParseFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables.Files {
		for line := range strings.Lines(string(table.Data)) {
			cells := strings.Split(line, "|")
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			if table.Name == name {
				rows = append(rows, cells)
			}
		}
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no table %s", file, name)
	}
	return rows
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
		"fail": stepFail, "again": stepAgain, "isolate": stepIsolate, "hold": stepHoldAll,
		"repair": stepRepair, "rewrite": stepRewrite, "bisect": stepBisect,
	}
	attempts := map[string]attempt{
		"plain": {}, "third": {failures: maxFailures - 1}, "fourth": {failures: maxFailures},
		"untagged":  {untagged: true, failures: maxFailures - 1},
		"one":       {untagged: true, of: oneOwner},
		"trial":     {untagged: true, of: partOfTrial, failures: maxFailures - 1},
		"heavy":     {of: heavyOwner, failures: maxFailures - 1},
		"anonymous": {anonymous: true, of: heavyOwner, failures: maxFailures - 1},
		"blamed":    {blame: tryAgain, anonymous: true, of: heavyOwner, failures: maxFailures - 1},
		"fails":     {blame: syncFails, anonymous: true},
	}
	for _, cells := range ReadTable(t, "fate.txtar", "attempt") {
		for in, want := range map[phase]string{phaseUpdate: cells[2], phaseRewrite: cells[3]} {
			a := attempts[cells[1]]
			a.in, a.kind = in, kinds[cells[0]]
			if got := a.next(); want != "" && got != steps[want] {
				t.Errorf("%+v (%s): got step %d, want %s", a, cells[0], got, want)
			}
		}
	}
}
