package nft_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// A refused commit names the refused change and applies nothing.
func TestCommitErrors(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family, c *nft.Conn) {
		b, s := newServices(t, c, f)
		clients, missing := addrSet(f, "clients"), addrSet(f, "missing")
		b.AddRow(service(s, f, 1, "one"))
		commit(t, c, b)
		before := list(t)
		addRules := func(chain string, rules ...nft.Rule) func() {
			return func() { b.AddRules(&nft.Chain{Name: chain, Rules: rules}) }
		}
		newRow, missingRow := service(s, f, 10, ""), nft.Row{Set: missing, Key: nft.Tuple{}.Addr(vip(f, 10))}
		oldKey := fmt.Sprintf("services %s . tcp . 80", vip(f, 1))
		newKey := fmt.Sprintf("services %s . tcp . 80", vip(f, 10))
		unknownType := &nft.Chain{Name: "base", Hook: &nft.Hook{Type: "unknown", Point: nft.Input}}
		nowhere := nft.NewRule(nft.CtStatusDNAT(), nft.Goto("nowhere"))

		const missingErr, existsErr, busyErr = "no such file or directory", "file exists", "device or resource busy"
		tests := []struct {
			name   string
			fill   func()
			change string
			reason string
		}{
			{"missing row", func() { b.DeleteRow(newRow) }, "delete element " + newKey, missingErr},
			{"other data", func() { b.AddRow(service(s, f, 1, "two")) }, "add element " + oldKey, existsErr},
			{"missing chain", func() { b.AddRow(service(s, f, 10, "nowhere")) }, "add element " + newKey, missingErr},
			{"row of missing set", func() { b.AddRow(missingRow) }, "add element " + missingRow.String(), missingErr},
			{"delete missing set", func() { b.DeleteSet("missing") }, "delete set missing", missingErr},
			{"flush missing set", func() { b.FlushSet("missing") }, "flush set missing", missingErr},
			{"delete missing chain", func() { b.DeleteChain("missing") }, "delete chain missing", missingErr},
			{"flush missing chain", func() { b.FlushChain("missing") }, "flush chain missing", missingErr},
			{"missing rule", func() { b.DeleteRule("one", 1234) }, "delete rule one handle 1234", missingErr},
			{"chain of rule", func() { b.DeleteRule("missing", 1) }, "delete rule missing handle 1", missingErr},
			{"chain in use", func() { b.DeleteChain("one") }, "delete chain one", busyErr},
			{"unknown type of base chain", func() { b.AddChain(unknownType) }, "add chain base", missingErr},
			{
				"missing target of rule", addRules("one", nft.NewRule(nft.Drop()), nowhere),
				"add rule one ct status dnat goto nowhere", missingErr,
			},
			{
				"add rule to missing chain", addRules("missing", nft.NewRule(nft.Drop()).WithComment("away")),
				`add rule missing drop comment "away"`, missingErr,
			},
			{
				"missing set of rule", addRules("one", nft.NewRule(nft.In(missing, nft.Daddr(f)))),
				fmt.Sprintf("add rule one %s daddr @missing", f), missingErr,
			},
			{
				"modulus 0", addRules("one", nft.NewRule(nft.VMap(s, nft.Random(0, 0)))),
				"add rule one numgen random mod 0 vmap @services", "numerical result out of range",
			},
			{"several", func() {
				b.AddSet(clients)
				b.DeleteRow(newRow)
				b.DeleteRow(nft.Row{Set: clients, Key: missingRow.Key})
				b.DeleteSet("missing")
			}, "delete element " + newKey, missingErr + " (and 2 more)"},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				b.Reset()
				b.AddChain(&nft.Chain{Name: "new"})
				tt.fill()
				checkError(t, c.Commit(b), fmt.Sprintf("commit table %s lb: %s: %s", f, tt.change, tt.reason))
			})
		}
		checkUnchanged(t, before)
	})
}

func TestMissingTable(t *testing.T) {
	c := connect(t)
	b := nft.NewBatch(&nft.Table{Family: nft.IPv6, Name: "nowhere"})
	b.AddChain(&nft.Chain{Name: "c"})
	err := c.Commit(b)
	checkError(t, err, "commit table ip6 nowhere: add chain c: no such file or directory")
	if !errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EEXIST) {
		t.Errorf("got %v, want ENOENT", err)
	}
	b.Reset()
	b.DeleteTable()
	checkError(t, c.Commit(b), "commit table ip6 nowhere: delete table: no such file or directory")
}

// A CommitError has all problems of a transaction in order.
func TestSeveralProblems(t *testing.T) {
	c := connect(t)
	b, s := newServices(t, c, nft.IPv4)
	b.Tag(1)
	b.DeleteRow(service(s, nft.IPv4, 1, ""))
	b.Tag(2)
	b.AddRow(service(s, nft.IPv4, 2, "nowhere"))
	b.Tag(0)
	b.DeleteChain("missing")
	got := refused(t, c.Commit(b))
	want := []nft.Problem{
		{Op: "delete element", Object: "services 10.96.0.1 . tcp . 80", Tag: 1, Errno: unix.ENOENT},
		{Op: "add element", Object: "services 10.96.0.2 . tcp . 80", Tag: 2, Errno: unix.ENOENT},
		{Op: "delete chain", Object: "missing", Errno: unix.ENOENT},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// The kernel refuses a loop of chains only if packets can enter the loop.
func TestLoop(t *testing.T) {
	c := connect(t)
	b, _ := newServices(t, c, nft.IPv4)
	jump := func(chain string) []nft.Rule { return []nft.Rule{nft.NewRule(nft.Jump(chain))} }
	b.AddRules(&nft.Chain{Name: "one", Rules: jump("two")})
	b.AddRules(&nft.Chain{Name: "two", Rules: jump("one")})
	base := &nft.Chain{
		Name: "base", Hook: &nft.Hook{Type: nft.ChainTypeFilter, Point: nft.Input}, Rules: jump("one"),
	}
	b.AddChain(base)
	b.AddRules(base)
	err := c.Commit(b)
	if !errors.Is(err, unix.EMLINK) && !errors.Is(err, unix.ELOOP) { // ELOOP before Linux 6.1
		t.Fatalf("commit of a loop: got %v, want EMLINK or ELOOP", err)
	}
	if p := refused(t, err)[0]; p.Op != "add rule" {
		t.Errorf("got problem %v, want one of add rule", p)
	}
}

// The kernel never replaces a set by one of another type. Linux 6.2 and later
// refuse the batch.
func TestSetOfAnotherType(t *testing.T) {
	c := connect(t)
	b, s := newServices(t, c, nft.IPv4)
	before := list(t)
	b.AddSet(&nft.Set{Name: s.Name, Key: s.Key})
	if err := c.Commit(b); err != nil || nstest.KernelAtLeast(t, 6, 2) {
		checkError(t, err, "commit table ip lb: add set services: file exists")
	}
	checkUnchanged(t, before)
}

// The explanation of the kernel is part of the error. All kernels explain the
// refusal of a request. Linux 6.18 explains the refusal of a transaction, 6.12
// does not.
func TestKernelExplains(t *testing.T) {
	c := connect(t)
	const explanation = "Attribute failed policy validation"
	long := &nft.Table{Family: nft.IPv4, Name: strings.Repeat("x", 300)}
	_, _, err := c.FindTable(long)
	if want := ": numerical result out of range: " + explanation; !strings.HasSuffix(fmt.Sprint(err), want) {
		t.Errorf("FindTable: got %v, want the end %q", err, want)
	}
	if !errors.Is(err, unix.ERANGE) {
		t.Errorf("FindTable: got %v, want ERANGE", err)
	}
	b := nft.NewBatch(long)
	b.DeleteTable()
	p := refused(t, c.Commit(b))[0]
	if p.Errno != unix.ERANGE || (p.Message != explanation && (p.Message != "" || nstest.KernelAtLeast(t, 6, 18))) {
		t.Errorf("DeleteTable: got problem %v, want ERANGE and %q", p, explanation)
	}
}

// An error that means "unsupported" names the required kernel version.
func TestUnsupported(t *testing.T) {
	p := nft.Problem{Op: "add set", Object: "s", Errno: unix.EOPNOTSUPP}
	const want = "add set s: operation not supported (requires Linux 5.10 or later with nf_tables)"
	if got := p.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
