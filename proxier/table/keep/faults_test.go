package keep_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// What a firewall does after each answer of the kernel is in
// testdata/faults.txtar.
func TestFaults(t *testing.T) {
	for _, in := range []string{"update", "rewrite"} {
		for _, cells := range keep.ReadTable(t, "faults.txtar", in) {
			answers, want := cells[0], strings.TrimSpace(strings.Join(cells[1:], " | "))
			t.Run(in+"/"+answers, func(t *testing.T) {
				t.Parallel()
				f := newFirewall(t)
				f.set("ssh", "22 from 10.0.0.1")
				f.set("web", "80 from 10.0.0.1 counted")
				f.sync(t)
				got := f.afterFaults(t, in, answers)
				if got != want {
					t.Errorf("got\n%s, want\n%s", got, want)
				}
				refused := len(f.refused)
				f.answer()
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
	f.set("web", "8080 from 10.0.0.3 counted")
	f.set("dns", "53")
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
	commits := f.answer(errs...)
	var err error
	for range syncs {
		err = f.Sync()
	}
	var calls []string
	for _, name := range f.refused {
		calls = append(calls, name+" refused")
	}
	for _, name := range f.staying() {
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
	switch r := f.rules[of]; {
	case r != nil:
		return []error{tabletest.Refuse(errno, r.tag)}
	case of == "message":
		return []error{tabletest.Refuse(errno, 0)}
	}
	return []error{tabletest.Refuse(errno)}
}
