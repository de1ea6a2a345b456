package nft_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// refused returns what a commit was refused for.
func refused(t testing.TB, err error) []nft.Problem {
	t.Helper()
	var e *nft.CommitError
	if !errors.As(err, &e) {
		t.Fatalf("commit was not refused: %v", err)
	}
	return e.Problems
}

// services is a verdict map by VIP.
func services(f nft.Family) *nft.Set {
	return &nft.Set{Name: "services", Key: nft.Types(nft.TypeAddr(f), nft.TypeInetProto, nft.TypeInetService), Verdicts: true}
}

// vip returns the i-th address of a family.
func vip(f nft.Family, i int) netip.Addr {
	base := "10.96.0.0"
	if f == nft.IPv6 {
		base = "fd00:96::"
	}
	b := netip.MustParseAddr(base).AsSlice()
	b[len(b)-3] += byte(i >> 16)
	b[len(b)-2] = byte(i >> 8)
	b[len(b)-1] = byte(i)
	a, _ := netip.AddrFromSlice(b)
	return a
}

// service is a row of services.
func service(s *nft.Set, f nft.Family, i int, chain string) nft.Row {
	return nft.Row{Set: s, Key: nft.Tuple{}.Addr(vip(f, i)).Proto(tcp).Port(80), Verdict: nft.VerdictGoto(chain)}
}

// newServices makes a table with a map of services and two chains, and returns a batch to change it.
func newServices(t testing.TB, c *nft.Conn, f nft.Family) (*nft.Batch, *nft.Set) {
	t.Helper()
	s := services(f)
	table := &nft.Table{Family: f, Name: "lb", Sets: []*nft.Set{s}, Chains: []*nft.Chain{{Name: "one"}, {Name: "two"}}}
	commitTable(t, c, table)
	return nft.NewBatch(table), s
}

// What is refused is named, and nothing of the transaction is carried out.
func TestCommitErrors(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family) {
		c := open(t)
		b, s := newServices(t, c, f)
		clients := &nft.Set{Name: "clients", Key: nft.Types(nft.TypeAddr(f))}
		missing := &nft.Set{Name: "missing", Key: nft.Types(nft.TypeAddr(f))}
		addr := vip(f, 10)
		b.AddRow(service(s, f, 1, "one"))
		commit(t, c, b)
		before := list(t)

		tests := []struct {
			name string
			fill func()
			want string
		}{
			{"row that is not there", func() { b.DeleteRow(service(s, f, 10, "")) },
				fmt.Sprintf("delete element services %s . tcp . 80: no such file or directory", addr)},
			{"row with other data", func() { b.AddRow(service(s, f, 1, "two")) },
				fmt.Sprintf("add element services %s . tcp . 80: file exists", vip(f, 1))},
			{"row to a chain that is not there", func() { b.AddRow(service(s, f, 10, "nowhere")) },
				fmt.Sprintf("add element services %s . tcp . 80: no such file or directory", addr)},
			{"row of a set that is not there", func() { b.AddRow(nft.Row{Set: missing, Key: nft.Tuple{}.Addr(addr)}) },
				fmt.Sprintf("add element missing %s: no such file or directory", addr)},
			{"set that is not there", func() { b.DeleteSet("missing") }, "delete set missing: no such file or directory"},
			{"rows of a set that is not there", func() { b.FlushSet("missing") }, "flush set missing: no such file or directory"},
			{"chain that is not there", func() { b.DeleteChain("missing") }, "delete chain missing: no such file or directory"},
			{"rules of a chain that is not there", func() { b.FlushChain("missing") }, "flush chain missing: no such file or directory"},
			{"rule that is not there", func() { b.DeleteRule("one", 1234) }, "delete rule one handle 1234: no such file or directory"},
			{"rule of a chain that is not there", func() { b.DeleteRule("missing", 1) }, "delete rule missing handle 1: no such file or directory"},
			{"chain in use", func() { b.DeleteChain("one") }, "delete chain one: device or resource busy"},
			{"base chain of an unknown type", func() {
				b.AddChain(&nft.Chain{Name: "base", Hook: &nft.Hook{Type: "unknown", Point: nft.Input}})
			}, "add chain base: no such file or directory"},
			{"rule to a chain that is not there", func() {
				b.AddRules(&nft.Chain{Name: "one", Rules: []nft.Rule{nft.NewRule(nft.Drop()), nft.NewRule(nft.CtStateNew(), nft.Goto("nowhere"))}})
			}, "add rule one ct state new goto nowhere: no such file or directory"},
			{"rule in a chain that is not there", func() {
				b.AddRules(&nft.Chain{Name: "missing", Rules: []nft.Rule{nft.NewRule(nft.Drop()).WithComment("away")}})
			}, `add rule missing drop comment "away": no such file or directory`},
			{"rule with a set that is not there", func() {
				b.AddRules(&nft.Chain{Name: "one", Rules: []nft.Rule{nft.NewRule(nft.In(missing, nft.Daddr(f)))}})
			}, fmt.Sprintf("add rule one %s daddr @missing: no such file or directory", f)},
			{"no choice", func() {
				b.AddRules(&nft.Chain{Name: "one", Rules: []nft.Rule{nft.NewRule(nft.VMap(s, nft.Random(0, 0)))}})
			}, "add rule one numgen random mod 0 vmap @services: numerical result out of range"},
			{"several", func() {
				b.AddSet(clients)
				b.DeleteRow(service(s, f, 10, ""))
				b.DeleteRow(nft.Row{Set: clients, Key: nft.Tuple{}.Addr(addr)})
				b.DeleteSet("missing")
			}, fmt.Sprintf("delete element services %s . tcp . 80: no such file or directory (and 2 more)", addr)},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				b.Reset()
				b.AddChain(&nft.Chain{Name: "new"})
				tt.fill()
				err := c.Commit(b)
				if want := fmt.Sprintf("commit table %s lb: %s", f, asListed(tt.want)); err == nil || asListed(err.Error()) != want {
					t.Errorf("got  %v\nwant %s", err, want)
				}
			})
		}
		if after := list(t); after != before {
			t.Errorf("something was carried out:\n%s", after)
		}
	})
}

func TestNoTable(t *testing.T) {
	newNamespace(t)
	c := open(t)
	b := nft.NewBatch(&nft.Table{Family: nft.IPv6, Name: "nowhere"})
	b.AddChain(&nft.Chain{Name: "c"})
	err := c.Commit(b)
	if want := "commit table ip6 nowhere: add chain c: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if !errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EEXIST) {
		t.Errorf("%v is not ENOENT", err)
	}
	b.Reset()
	b.DeleteTable()
	if err, want := c.Commit(b), "commit table ip6 nowhere: delete table: no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// All complaints of one transaction are there, in order.
func TestSeveralProblems(t *testing.T) {
	newNamespace(t)
	c := open(t)
	b, s := newServices(t, c, nft.IPv4)
	b.Tag(1)
	b.DeleteRow(service(s, nft.IPv4, 1, ""))
	b.Tag(2)
	b.AddRow(service(s, nft.IPv4, 2, "nowhere"))
	b.Tag(0)
	b.DeleteChain("missing")
	var got []string
	for _, p := range refused(t, c.Commit(b)) {
		got = append(got, fmt.Sprintf("%s %s, tag %d, %d", p.Op, p.Object, p.Tag, int(p.Errno)))
	}
	want := []string{
		"delete element services 10.96.0.1 . tcp . 80, tag 1, 2",
		"add element services 10.96.0.2 . tcp . 80, tag 2, 2",
		"delete chain missing, tag 0, 2",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A loop of chains is found where it can be entered, not where it is made.
func TestLoop(t *testing.T) {
	newNamespace(t)
	c := open(t)
	b, _ := newServices(t, c, nft.IPv4)
	for _, c := range []*nft.Chain{
		{Name: "one", Rules: []nft.Rule{nft.NewRule(nft.Jump("two"))}},
		{Name: "two", Rules: []nft.Rule{nft.NewRule(nft.Jump("one"))}},
	} {
		b.AddRules(c)
	}
	b.AddChain(&nft.Chain{Name: "base", Hook: &nft.Hook{Type: nft.TypeFilter, Point: nft.Input}})
	b.AddRules(&nft.Chain{Name: "base", Rules: []nft.Rule{nft.NewRule(nft.Jump("one"))}})
	err := c.Commit(b)
	if !errors.Is(err, unix.EMLINK) && !errors.Is(err, unix.ELOOP) { // ELOOP before Linux 6.1
		t.Fatalf("a loop is committed with %v", err)
	}
	if p := refused(t, err)[0]; p.Op != "add rule" {
		t.Errorf("the loop is made by %v", p)
	}
}

// A set of another type is an error on kernels that see it, but in no case is it replaced.
func TestSetOfAnotherType(t *testing.T) {
	newNamespace(t)
	c := open(t)
	b, s := newServices(t, c, nft.IPv4)
	before := list(t)
	b.AddSet(&nft.Set{Name: s.Name, Key: s.Key})
	err := c.Commit(b)
	switch want := "commit table ip lb: add set services: file exists"; {
	case err != nil && err.Error() != want:
		t.Errorf("got  %v\nwant %s", err, want)
	case err == nil && kernelAtLeast(t, 6, 2):
		t.Error("the kernel did not see it")
	}
	if after := list(t); after != before {
		t.Errorf("something was carried out:\n%s", after)
	}
}

// kernelAtLeast says whether the running kernel is of this version or later.
func kernelAtLeast(t testing.TB, major, minor int) bool {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	var a, b int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &a, &b); err != nil {
		t.Fatal(err)
	}
	return a > major || (a == major && b >= minor)
}

// Of many rows in one message the kernel tells which one it refuses. Before Linux 6.1 the tag may be unknown, but it is never wrong.
func TestTagOfTheCulprit(t *testing.T) {
	eachFamily(t, func(t *testing.T, f nft.Family) {
		c := open(t)
		b, s := newServices(t, c, f)
		const rows = 2000 // in several messages
		for _, culprit := range []int{0, 1, rows / 2, rows - 1} {
			b.Reset()
			for i := range rows {
				b.Tag(uint32(1000 + i))
				chain := "one"
				if i == culprit {
					chain = "nowhere"
				}
				b.AddRow(service(s, f, i, chain))
			}
			checkCulprit(t, refused(t, c.Commit(b)), "add element", vip(f, culprit), uint32(1000+culprit))

			b.Reset()
			for i := range rows {
				b.Tag(uint32(1000 + i))
				if i != culprit {
					b.AddRow(service(s, f, i, "one"))
				}
			}
			for i := range rows {
				b.Tag(uint32(5000 + i))
				b.DeleteRow(service(s, f, i, ""))
			}
			checkCulprit(t, refused(t, c.Commit(b)), "delete element", vip(f, culprit), uint32(5000+culprit))
		}
	})
}

func checkCulprit(t *testing.T, problems []nft.Problem, op string, addr netip.Addr, tag uint32) {
	t.Helper()
	if len(problems) != 1 {
		t.Fatalf("%d problems, want 1: %v", len(problems), problems)
	}
	want := nft.Problem{Op: op, Object: fmt.Sprintf("services %s . tcp . 80", addr), Tag: tag, Errno: unix.ENOENT}
	unknown := nft.Problem{Op: op, Object: "services", Errno: unix.ENOENT}
	if p := problems[0]; p != want && (p != unknown || kernelAtLeast(t, 6, 1)) {
		t.Errorf("%v with tag %d, want %v with tag %d", p, p.Tag, want, want.Tag)
	}
}

// Where all rows of a message have one tag, that is the culprit's, whether the kernel tells the row or not.
func TestTagOfAllRows(t *testing.T) {
	newNamespace(t)
	c := open(t)
	b, s := newServices(t, c, nft.IPv4)
	b.Tag(7)
	b.AddChain(&nft.Chain{Name: "new"})
	b.Tag(8)
	for i := range 100 {
		b.AddRow(service(s, nft.IPv4, i, "one"))
	}
	b.Tag(9)
	for i := range 100 {
		b.DeleteRow(service(s, nft.IPv4, i+1, ""))
	}
	if p := refused(t, c.Commit(b))[0]; p.Tag != 9 {
		t.Errorf("%v has tag %d", p, p.Tag)
	}
}

// The kernel's own explanation is passed on: for a request by every kernel, in a transaction by Linux 6.18, not by 6.12.
func TestKernelExplains(t *testing.T) {
	newNamespace(t)
	c := open(t)
	const explanation = "Attribute failed policy validation"
	long := &nft.Table{Family: nft.IPv4, Name: strings.Repeat("x", 300)}
	if _, _, err := c.FindTable(long); !errors.Is(err, unix.ERANGE) || !strings.HasSuffix(err.Error(), ": numerical result out of range: "+explanation) {
		t.Errorf("read table: %v", err)
	}
	b := nft.NewBatch(long)
	b.DeleteTable()
	p := refused(t, c.Commit(b))[0]
	if p.Errno != unix.ERANGE || (p.Message != explanation && (p.Message != "" || kernelAtLeast(t, 6, 18))) {
		t.Errorf("delete table: %v", p)
	}
}

// Without the right to do it, no message is to blame but the transaction as a whole; and no message can be larger than the
// system's limit for send buffers.
func TestWithoutCapability(t *testing.T) {
	newNamespace(t)
	c := open(t)
	b, s := newServices(t, c, nft.IPv4)
	before := list(t)
	b.AddRow(service(s, nft.IPv4, 1, "one"))
	dropCapabilities(t)
	err := c.Commit(b)
	if want := "commit table ip lb: operation not permitted"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if p := refused(t, err)[0]; p.Op != "commit" || p.Object != "" || p.String() != "commit: operation not permitted" {
		t.Errorf("problem is %v", p)
	}
	limit := sendBufferLimit(t)
	for i := 0; b.Len() <= limit; i++ {
		b.AddRow(service(s, nft.IPv4, i, "one"))
	}
	err = c.Commit(b)
	if !errors.Is(err, unix.EMSGSIZE) || !strings.HasPrefix(err.Error(), "commit table ip lb: send ") {
		t.Errorf("a large batch is committed with %v", err)
	}
	if _, err := c.Generation(); !errors.Is(err, unix.EPERM) {
		t.Errorf("generation is read with %v", err)
	}
	if after := list(t); after != before {
		t.Errorf("something was carried out:\n%s", after)
	}
}

// sendBufferLimit is the largest size that a send buffer can have without capabilities.
func sendBufferLimit(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<30); err != nil {
		t.Fatal(err)
	}
	n, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// dropCapabilities takes all capabilities from the test's thread; programs that it runs get root's again.
func dropCapabilities(t *testing.T) {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	data[0].Effective, data[1].Effective = 0, 0
	if err := unix.Capset(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
}

// A commit that expects a generation is refused once anybody committed something.
func TestExpect(t *testing.T) {
	newNamespace(t)
	c, other := open(t), open(t)
	b, s := newServices(t, c, nft.IPv4)
	gen := generation(t, c)

	b.AddRow(service(s, nft.IPv4, 1, "one"))
	b.Expect(gen)
	commit(t, c, b)
	if now := generation(t, c); now != nft.NextGeneration(gen) {
		t.Fatalf("a transaction moved the generation from %d to %d", gen, now)
	}

	gen = generation(t, c)
	elsewhere := nft.NewBatch(&nft.Table{Family: nft.IPv6, Name: "elsewhere"})
	elsewhere.AddProgram()
	commit(t, other, elsewhere)
	b.Reset()
	b.Expect(gen)
	b.AddRow(service(s, nft.IPv4, 2, "one"))
	err := c.Commit(b)
	if !errors.Is(err, nft.ErrGeneration) || errors.Is(err, nft.ErrUnknownOutcome) {
		t.Fatalf("commit after somebody else's: %v", err)
	}
	if want := "commit table ip lb: ruleset was changed by another program"; err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if got := elements(t, list(t), "map services"); len(got) != 1 {
		t.Fatalf("the commit was carried out: %v", got)
	}

	// The same batch, and more in it, can be tried again.
	b.AddRow(service(s, nft.IPv4, 3, "two"))
	b.Expect(generation(t, c))
	commit(t, c, b)
	if got := elements(t, list(t), "map services"); len(got) != 3 {
		t.Fatalf("the commit was not carried out: %v", got)
	}

	// Reset forgets what was expected.
	b.Reset()
	b.DeleteRow(service(s, nft.IPv4, 3, ""))
	commit(t, c, b)
}

func generation(t testing.TB, c *nft.Conn) uint32 {
	t.Helper()
	gen, err := c.Generation()
	if err != nil {
		t.Fatal(err)
	}
	if gen == 0 {
		t.Fatal("generation is 0")
	}
	return gen
}

func TestNextGeneration(t *testing.T) {
	for gen, want := range map[uint32]uint32{1: 2, 0xfffffffe: 0xffffffff, 0xffffffff: 1} {
		if got := nft.NextGeneration(gen); got != want {
			t.Errorf("%d is followed by %d, want %d", gen, got, want)
		}
	}
}

func TestClosed(t *testing.T) {
	newNamespace(t)
	c, err := nft.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	b := nft.NewBatch(&nft.Table{Family: nft.IPv4, Name: "t"})
	b.AddTable("")
	if err := c.Commit(b); !errors.Is(err, unix.EBADF) || errors.Is(err, nft.ErrUnknownOutcome) {
		t.Errorf("commit on a closed connection: %v", err)
	}
	if _, err := c.Generation(); !errors.Is(err, unix.EBADF) {
		t.Errorf("request on a closed connection: %v", err)
	}
}
