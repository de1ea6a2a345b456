package keep_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// refuse is the answer of a kernel that refuses a message of a rule, or of
// several if the tag is 0. refuseAll refuses the whole transaction.
func refuse(errno unix.Errno, tag uint32) error {
	p := nft.Problem{Op: "add element", Object: "ports 8080", Tag: tag, Errno: errno}
	return &nft.CommitError{Table: "ip firewall", Problems: []nft.Problem{p}}
}

func refuseAll(errno unix.Errno) error {
	return &nft.CommitError{Table: "ip firewall", Problems: []nft.Problem{{Op: "commit", Errno: errno}}}
}

// allowed returns the ports in the kernel, in order.
func (f *firewall) allowed(t *testing.T) string {
	t.Helper()
	var all []string
	for _, line := range f.list(t, f.Program(noSet)) {
		if row, ok := strings.CutPrefix(line, "ports "); ok {
			port, _, _ := strings.Cut(row, " ")
			all = append(all, port)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return strings.Compare(fmt.Sprintf("%5s", a), fmt.Sprintf("%5s", b)) })
	return strings.Join(all, " ")
}

// The firewall allows ports 22 and 80. Then the rule web moves from port 80 to
// 8080, and the new rule dns allows port 53. What the kernel answers to an
// update of these rules, or to a rewrite, determines what it has afterwards.
// A Resync without faults writes what is wanted.
func TestFaults(t *testing.T) {
	const web = 2 // the tag
	lost := fmt.Errorf("test: %w", nft.ErrUnknownOutcome)
	const busy other = "add table ip other\ndelete table ip other"
	noMemory, conflict, invalid := refuse(unix.ENOMEM, web), refuse(unix.EEXIST, web), refuse(unix.EINVAL, web)
	for _, tt := range []struct {
		name              string
		answers           []error
		syncs             int // 0 means one
		ports             string
		commits, rewrites int
		calls             string // of Source
		fails             bool   // the last sync
	}{
		{name: "update/none", ports: "22 53 8080", commits: 1},
		{name: "update/memory of a rule", answers: []error{noMemory}, ports: "22 53 80", commits: 2, fails: true},
		{name: "update/memory of a rule, twice", answers: []error{noMemory, noMemory}, ports: "22 53 80", commits: 3,
			calls: "stays [web]", fails: true},
		{name: "update/memory of a message", answers: []error{refuse(unix.ENOMEM, 0)}, ports: "22 53 8080", commits: 2},
		{name: "update/memory", answers: []error{refuseAll(unix.ENOMEM)}, ports: "22 80", commits: 1, fails: true},
		{name: "update/memory, three times", answers: slices.Repeat([]error{refuseAll(unix.ENOMEM)}, 3), syncs: 3,
			ports: "22 53 8080", commits: 4, rewrites: 1},

		{name: "update/invalid rule", answers: []error{invalid}, ports: "22 53 80", commits: 2, calls: "refused [web]"},
		{name: "update/invalid rule, twice", answers: []error{invalid, invalid}, ports: "22 53", commits: 3,
			calls: "refused [web]"},
		{name: "update/invalid rule, then memory", answers: []error{invalid, noMemory}, ports: "22 53 80", commits: 3,
			calls: "refused [web] stays [web]", fails: true},
		{name: "update/invalid", answers: []error{refuseAll(unix.EINVAL)}, ports: "22 53 8080", commits: 2, rewrites: 1},

		{name: "update/conflict", answers: []error{conflict}, ports: "22 53 8080", commits: 3, rewrites: 1},
		{name: "update/conflict, twice", answers: []error{conflict, conflict}, ports: "22 53 8080", commits: 4, rewrites: 1},
		{name: "update/conflict, also in the rewrite", answers: []error{conflict, nil, conflict}, ports: "22 53 80",
			commits: 4, rewrites: 1, calls: "refused [web]"},
		{name: "update/conflict of a message", answers: []error{refuse(unix.EEXIST, 0)}, ports: "22 53 8080", commits: 2},
		{name: "update/conflict of a message, twice", answers: slices.Repeat([]error{refuse(unix.EEXIST, 0)}, 2),
			ports: "22 53 8080", commits: 3, rewrites: 1},

		{name: "update/lost answer", answers: []error{lost}, ports: "22 53 8080", commits: 2, rewrites: 1},
		{name: "update/lost answers", answers: []error{lost, lost}, ports: "22 53 8080", commits: 2, fails: true},
		{name: "update/permission", answers: slices.Repeat([]error{refuseAll(unix.EPERM)}, 3), syncs: 3, ports: "22 80",
			commits: 3, fails: true},

		{name: "update/another program", answers: []error{busy}, ports: "22 53 8080", commits: 2},
		{name: "update/another program, always", answers: slices.Repeat([]error{busy}, 20), ports: "22 80", commits: 20,
			fails: true},
		{name: "update/another program changes the table", answers: []error{other("flush chain ip firewall services")},
			ports: "22 53 8080", commits: 2, rewrites: 1},

		{name: "rewrite/none", ports: "22 53 8080", commits: 1, rewrites: 1},
		{name: "rewrite/memory of a rule", answers: []error{noMemory}, ports: "22 80", commits: 1, fails: true},
		{name: "rewrite/memory of a rule, twice", answers: []error{noMemory, noMemory}, syncs: 2, ports: "22 53 80",
			commits: 3, rewrites: 1, calls: "refused [web]"},
		{name: "rewrite/memory", answers: []error{refuseAll(unix.ENOMEM)}, ports: "22 80", commits: 1, fails: true},
		{name: "rewrite/invalid rule", answers: []error{invalid}, ports: "22 53 80", commits: 2, rewrites: 1,
			calls: "refused [web]"},
		{name: "rewrite/invalid rule, twice", answers: []error{invalid, invalid}, ports: "22 53", commits: 3, rewrites: 1,
			calls: "refused [web]"},
		{name: "rewrite/invalid message", answers: []error{refuse(unix.EINVAL, 0)}, ports: "22 53 8080", commits: 2,
			rewrites: 1},
		{name: "rewrite/invalid message, twice", answers: slices.Repeat([]error{refuse(unix.EINVAL, 0)}, 2),
			ports: "22 80", commits: 2, fails: true},
		{name: "rewrite/conflict", answers: []error{conflict}, ports: "22 53 8080", commits: 2, rewrites: 1},
		{name: "rewrite/lost answer", answers: []error{lost}, ports: "22 53 8080", commits: 1, fails: true},
		{name: "rewrite/another program", answers: []error{busy}, ports: "22 53 8080", commits: 2, rewrites: 1},
		{name: "rewrite/another program deletes the table", answers: []error{other("delete table ip firewall")},
			ports: "22 53 8080", commits: 2, rewrites: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFirewall(t)
			f.set("ssh", allow(22).from("10.0.0.1"))
			f.set("web", allow(80).from("10.0.0.1").counted())
			f.sync(t)
			rewrites := f.Stats().Rewrites
			f.set("web", allow(8080).from("10.0.0.3").counted())
			f.set("dns", allow(53))
			if strings.HasPrefix(tt.name, "rewrite") {
				f.Distrust("test", "test")
			}
			commits := f.answer(t, tt.answers...)
			var err error
			for range max(tt.syncs, 1) {
				err = f.Sync()
			}
			if ports := f.allowed(t); ports != tt.ports || (err != nil) != tt.fails {
				t.Errorf("got ports %q and error %v, want %q and error: %v", ports, err, tt.ports, tt.fails)
			}
			var calls []string
			if len(f.refused) > 0 {
				calls = append(calls, fmt.Sprint("refused ", f.refused))
			}
			if len(f.stays) > 0 {
				calls = append(calls, fmt.Sprint("stays ", f.stays))
			}
			if calls := strings.Join(calls, " "); calls != tt.calls {
				t.Errorf("got calls %q, want %q", calls, tt.calls)
			}
			if n := f.Stats().Rewrites - rewrites; *commits != tt.commits || n != tt.rewrites {
				t.Errorf("got %d commits and %d rewrites, want %d and %d", *commits, n, tt.commits, tt.rewrites)
			}

			refused := len(f.refused)
			f.answer(t)
			if err := f.Resync(); err != nil {
				t.Fatal(err)
			}
			f.check(t)
			if failing := slices.Collect(f.Failing()); len(failing) > 0 || len(f.refused) != refused || !f.UpToDate() {
				t.Errorf("at the end: got failing rules %v, refused %v", failing, f.refused)
			}
		})
	}
}

// The answers to an update and to the rewrite that follows are lost, and the
// change is taken back. The kernel does not keep it.
func TestLostAnswers(t *testing.T) {
	f := newServing(t)
	before := f.rules["web"].wants
	f.set("web", allow(8080))
	lost := fmt.Errorf("test: %w", nft.ErrUnknownOutcome)
	f.answer(t, lost, lost)
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
	if err := f.Sync(); err == nil {
		t.Error("the sync succeeded without memory")
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
