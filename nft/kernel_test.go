package nft_test

import (
	"net/netip"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// newNamespace puts the test into a network namespace of its own. The test's thread ends with the test, and
// the namespace with it.
func newNamespace(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("make a network namespace (needs root): %v", err)
	}
}

// open returns a connection to the nf_tables of the test's namespace.
func open(t testing.TB) *nft.Conn {
	t.Helper()
	c, err := nft.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// runNFT runs the nft program on input and returns what it prints.
func runNFT(t testing.TB, input string, args ...string) string {
	t.Helper()
	cmd := exec.Command("nft", args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nft %s: %v\n%s\ninput:\n%s", strings.Join(args, " "), err, out, input)
	}
	return string(out)
}

var (
	tcp       = uint8(unix.IPPROTO_TCP)
	keyFields = func(f nft.Family) nft.Fields { return nft.Types(nft.TypeAddr(f), nft.TypeInetProto, nft.TypeInetService) }
)

func TestSmoke(t *testing.T) {
	newNamespace(t)
	c := open(t)
	f := nft.IPv4
	services := &nft.Set{Name: "services", Key: keyFields(f), Verdicts: true, Comment: "x"}
	endpoints := &nft.Set{Name: "endpoints", Key: nft.Typeof(nft.Daddr(f), nft.L4Proto(), nft.ThDport(), nft.Random(1, 0)), Data: nft.Typeof(nft.Daddr(f), nft.ThDport())}
	table := &nft.Table{Family: f, Name: "lb", Comment: "hello", Sets: []*nft.Set{services, endpoints}}
	b2 := &nft.Chain{Name: "balance-2", Rules: []nft.Rule{nft.NewRule(nft.DNATMap(f, endpoints, nft.Daddr(f), nft.L4Proto(), nft.ThDport(), nft.Random(2, 0)))}}
	pre := &nft.Chain{Name: "pre", Hook: &nft.Hook{Type: nft.TypeNAT, Point: nft.Prerouting, Priority: nft.PriorityDstNAT}, Rules: []nft.Rule{nft.NewRule(nft.VMap(services, nft.Daddr(f), nft.L4Proto(), nft.ThDport())).WithComment("c")}}
	b := nft.NewBatch(table)
	b.AddTable(table.Comment)
	b.AddSet(services)
	b.AddSet(endpoints)
	b.AddChain(b2)
	b.AddRules(b2)
	b.AddChain(pre)
	b.AddRules(pre)
	vip := netip.MustParseAddr("10.0.0.1")
	b.AddRow(nft.Row{Set: services, Key: nft.Tuple{}.Addr(vip).Proto(tcp).Port(80), Verdict: nft.VerdictGoto("balance-2"), Comment: "default/web"})
	for i := range uint32(2) {
		b.AddRow(nft.Row{Set: endpoints, Key: nft.Tuple{}.Addr(vip).Proto(tcp).Port(80).Integer(i), Data: nft.Tuple{}.Addr(netip.MustParseAddr("10.1.0.1")).Port(8080)})
	}
	if err := c.Commit(b); err != nil {
		t.Fatal(err)
	}
	t.Log(runNFT(t, "", "list", "ruleset"))
	b.Reset()
	b.DeleteRow(nft.Row{Set: endpoints, Key: nft.Tuple{}.Addr(vip).Proto(tcp).Port(80).Integer(0)})
	b.DeleteRow(nft.Row{Set: endpoints, Key: nft.Tuple{}.Addr(vip).Proto(tcp).Port(80).Integer(7)})
	t.Log(c.Commit(b))
	t.Log(c.Chains(table))
	t.Log(c.Sets(table))
	t.Log(c.Generation())
}
