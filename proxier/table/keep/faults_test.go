package keep_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// The firewall allows ports 22 and 80. Then the rule web moves from port 80 to
// 8080, and the new rule dns allows port 53. What the kernel answers to an
// update of these rules, or to a rewrite, determines what the kernel has
// afterwards. A Resync without faults writes what is wanted.
//
// Commas separate the answers to the commits of a sync, semicolons syncs. The
// answer can refuse a message of web, a message of several rules, or the whole
// transaction. The columns after it are the numbers of commits and rewrites,
// the ports that the kernel allows then, and what else follows. fails means
// that the last sync fails.
func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		in    string
		table string
	}{
		{"update", `
			ok                                     | 1 | 0 | 22 53 8080 |
			ENOMEM web                             | 2 | 0 | 22 53 80   | waits
			ENOMEM web, ENOMEM web                 | 3 | 0 | 22 53 80   | web stays, waits
			ENOMEM web, ok; ENOMEM web; ENOMEM web | 4 | 0 | 22 53 80   | waits
			ENOMEM web, ok; ENOMEM web; ENOMEM web; ENOMEM web | 5 | 0 | 22 53 80 | web refused
			ENOMEM message                         | 2 | 0 | 22 53 8080 |
			ENOMEM                                 | 1 | 0 | 22 80      | fails
			ENOMEM; ENOMEM; ENOMEM                 | 4 | 1 | 22 53 8080 |
			EINVAL web                             | 2 | 0 | 22 53 80   | web refused
			EINVAL web, EINVAL web                 | 3 | 0 | 22 53      | web refused
			EINVAL web, ENOMEM web                 | 3 | 0 | 22 53 80   | web refused, web stays, waits
			EINVAL message                         | 2 | 0 | 22 53 8080 |
			EINVAL                                 | 2 | 1 | 22 53 8080 |
			EEXIST web                             | 3 | 1 | 22 53 8080 |
			EEXIST web, EEXIST web                 | 4 | 1 | 22 53 8080 |
			EEXIST web, ok, EEXIST web             | 4 | 1 | 22 53 80   | web refused
			EEXIST message                         | 2 | 0 | 22 53 8080 |
			EEXIST message, EEXIST message         | 3 | 1 | 22 53 8080 |
			lost                                   | 2 | 1 | 22 53 8080 |
			lost, lost                             | 2 | 0 | 22 53 8080 | fails
			EPERM; EPERM; EPERM                    | 3 | 0 | 22 80      | fails
			other program                          | 2 | 0 | 22 53 8080 |
			other program always                   |20 | 0 | 22 80      | fails
			chain flushed                          | 2 | 1 | 22 53 8080 |
			table deleted                          | 2 | 1 | 22 53 8080 |`},
		{"rewrite", `
			ok                                     | 1 | 1 | 22 53 8080 |
			ENOMEM web                             | 1 | 0 | 22 80      | fails
			ENOMEM web; ENOMEM web                 | 3 | 1 | 22 53 80   | web refused
			ENOMEM                                 | 1 | 0 | 22 80      | fails
			EINVAL web                             | 2 | 1 | 22 53 80   | web refused
			EINVAL web, EINVAL web                 | 3 | 1 | 22 53      | web refused
			EINVAL message                         | 2 | 1 | 22 53 8080 |
			EINVAL message, EINVAL message         | 2 | 0 | 22 80      | fails
			EEXIST web                             | 2 | 1 | 22 53 8080 |
			EEXIST web, EEXIST web                 | 3 | 1 | 22 53 80   | web refused
			lost                                   | 1 | 0 | 22 53 8080 | fails
			EPERM                                  | 1 | 0 | 22 80      | fails
			other program                          | 2 | 1 | 22 53 8080 |
			chain flushed                          | 2 | 1 | 22 53 8080 |
			table deleted                          | 2 | 1 | 22 53 8080 |`},
	} {
		for line := range strings.SplitSeq(strings.TrimSpace(tt.table), "\n") {
			answers, want, _ := strings.Cut(strings.TrimSpace(line), "|")
			answers = strings.TrimSpace(answers)
			t.Run(tt.in+"/"+answers, func(t *testing.T) {
				f := newFirewall(t)
				f.set("ssh", allow(22).from("10.0.0.1"))
				f.set("web", allow(80).from("10.0.0.1").counted())
				f.sync(t)
				got := f.afterFaults(t, tt.in, answers)
				if want := strings.Join(strings.Fields(want), " "); got != want {
					t.Errorf("got\n%s, want\n%s", got, want)
				}
				refused := len(f.refused)
				f.answer(t)
				if err := f.Resync(); err != nil {
					t.Fatal(err)
				}
				f.check(t)
				failing := slices.Collect(f.Failing())
				if len(failing) > 0 || len(f.refused) != refused || !f.UpToDate() {
					t.Errorf("at the end: got failing rules %v, refused %v", failing, f.refused)
				}
			})
		}
	}
}

// afterFaults changes rules, and returns what follows these answers, as in the
// tables of TestFaults.
func (f *firewall) afterFaults(t *testing.T, in, answers string) string {
	t.Helper()
	rewrites := f.Stats().Rewrites
	f.set("web", allow(8080).from("10.0.0.3").counted())
	f.set("dns", allow(53))
	if in == "rewrite" {
		f.Distrust("test", "test")
	}
	syncs := strings.Split(answers, "; ")
	var errs []error
	for _, sync := range syncs {
		for answer := range strings.SplitSeq(sync, ", ") {
			errs = append(errs, f.fault(answer)...)
		}
	}
	commits := f.answer(t, errs...)
	var err error
	for range syncs {
		err = f.Sync()
	}
	var calls []string
	for _, name := range f.refused {
		calls = append(calls, name+" refused")
	}
	for _, name := range f.stays {
		calls = append(calls, name+" stays")
	}
	switch {
	case err != nil:
		calls = append(calls, "fails")
	case !f.UpToDate():
		calls = append(calls, "waits")
	}
	n := f.Stats().Rewrites - rewrites
	return strings.TrimSpace(fmt.Sprint(*commits, " | ", n, " | ", f.allowed(t), " | ", strings.Join(calls, ", ")))
}

// fault returns an answer in the words of TestFaults.
func (f *firewall) fault(answer string) []error {
	const program other = "add table ip other\ndelete table ip other"
	switch answer {
	case "ok":
		return []error{nil}
	case "lost":
		return []error{errLost}
	case "other program":
		return []error{program}
	case "other program always":
		return slices.Repeat([]error{program}, 20)
	case "chain flushed":
		return []error{other("flush chain ip firewall services")}
	case "table deleted":
		return []error{other("delete table ip firewall")}
	}
	name, of, _ := strings.Cut(answer, " ")
	errno := map[string]unix.Errno{
		"ENOMEM": unix.ENOMEM, "EINVAL": unix.EINVAL, "EEXIST": unix.EEXIST, "EPERM": unix.EPERM,
	}[name]
	switch of {
	case "web":
		return []error{refuse(errno, f.rules["web"].tag)}
	case "message":
		return []error{refuse(errno, 0)}
	}
	return []error{refuseAll(errno)}
}

// The answers to an update and to the rewrite that follows are lost, and the
// change is taken back. The kernel does not keep it.
func TestLostAnswers(t *testing.T) {
	f := newServing(t)
	before := f.rules["web"].wants
	f.set("web", allow(8080))
	f.answer(t, errLost, errLost)
	if err := f.Sync(); err == nil || f.InDoubt() == "" || f.UpToDate() {
		t.Errorf("got error %v, doubt %q, up to date: %v", err, f.InDoubt(), f.UpToDate())
	}
	f.set("web", before)
	f.sync(t)
	f.check(t)
}

// A rule keeps what the kernel has after two failures in a sync. It is asked
// for twice, and the transaction has nothing of it.
func TestRuleStays(t *testing.T) {
	f := newServing(t)
	web := f.set("web", allow(8080).from("10.0.0.3"))
	f.set("dns", allow(53))
	noMemory := refuse(unix.ENOMEM, web.tag)
	f.answer(t, noMemory, noMemory)
	before, had := f.Stats(), web.Kept().Have()
	f.sync(t)
	if _, waits := f.Next(); !waits || f.UpToDate() {
		t.Error("the rule does not wait")
	}
	if want := []string{"web", "dns", "web-", "dns", "dns"}; !slices.Equal(f.asked, want) {
		t.Errorf("got calls of Content for %q, want %q", f.asked, want)
	}
	after := f.Stats()
	if n := after.RowsWritten - before.RowsWritten; n != 1 || web.Kept().Have() != had {
		t.Errorf("got %d rows written and content %v, want 1 row and %v", n, web.Kept().Have(), had)
	}
	f.sync(t)
	f.check(t, had.(*content))
}

// The source itself can refuse a content. The rule keeps what it has until the
// source changes its mind, and is reported once.
func TestContentWithError(t *testing.T) {
	f := newServing(t)
	web := f.set("web", allow(8080))
	web.err = errors.New("port 8080 is reserved")
	for range 2 {
		f.sync(t)
		if err := f.Resync(); err != nil {
			t.Fatal(err)
		}
	}
	why, refused := web.Kept().Refused()
	if ports := f.allowed(t); ports != "22 80" || len(f.refused) != 1 || !refused || why != web.err.Error() {
		t.Errorf("got ports %s, refused %v: %s", ports, f.refused, why)
	}
	web.err = nil
	if err := f.Resync(); err != nil {
		t.Fatal(err)
	}
	if ports := f.allowed(t); ports != "22 8080" {
		t.Errorf("without the error: got ports %s, want 22 8080", ports)
	}
}

// Of two chains that nothing needs any more, one cannot be deleted, because a
// rule of another program refers to it, or the kernel has no memory. Or the
// answer of the kernel is lost. A later sync deletes what is left.
func TestUndeletableChain(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer error // to the deletion
		other  bool  // the sync deletes the other chain
		fails  bool
	}{
		{"in use", other("add rule ip firewall mine jump allow-ssh"), true, false},
		{"refused", refuseAll(unix.ENOMEM), false, false},
		{"lost answer", errLost, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newServing(t)
			f.set("dns", allow(53).remembered("allow-dns"))
			f.sync(t)
			tabletest.LoadNFT(t, "add chain ip firewall mine")
			f.mustCheck(t)
			f.set("ssh", allow(22))
			f.set("dns", allow(53))
			f.answer(t, nil, tt.answer)
			if err := f.Sync(); (err != nil) != tt.fails {
				t.Errorf("got error %v, want one: %v", err, tt.fails)
			}
			if deleted := !f.hasChain(t, "allow-dns"); f.Stats().CleanupFailures == 0 || deleted != tt.other {
				t.Errorf("got no failures to delete a chain, or the other chain was deleted: %v", deleted)
			}
			tabletest.LoadNFT(t, "flush chain ip firewall mine\ndelete chain ip firewall mine")
			f.answer(t)
			if err := f.Resync(); err != nil {
				t.Fatal(err)
			}
			if f.hasChain(t, "allow-ssh") {
				t.Error("the chain was not deleted")
			}
		})
	}
}

// While another program fights for the table, a conflict causes no rewrite. A
// rule that fails four times is refused.
func TestConflictInFight(t *testing.T) {
	f := newServing(t)
	f.limits.FirstPause = time.Hour
	for range 2 {
		tabletest.LoadNFT(t, "flush ruleset")
		f.mustCheck(t)
	}
	rewrites := f.Stats().Rewrites
	web := f.set("web", allow(8080))
	f.answer(t, slices.Repeat([]error{refuse(unix.EEXIST, web.tag)}, 4)...)
	for n := range 3 {
		if err := f.Sync(); err != nil || f.UpToDate() || len(f.refused) > 0 {
			t.Errorf("sync %d: got error %v, refused %v; want that the rule waits", n+1, err, f.refused)
		}
	}
	f.sync(t)
	if n := f.Stats().Rewrites - rewrites; n != 0 || len(f.refused) != 1 || f.allowed(t) != "22 80" {
		t.Errorf("got %d rewrites, refused %v, ports %s; want none, web, 22 80", n, f.refused, f.allowed(t))
	}
}
