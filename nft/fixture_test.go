package nft_test

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

const (
	tcp  = uint8(unix.IPPROTO_TCP)
	udp  = uint8(unix.IPPROTO_UDP)
	sctp = uint8(unix.IPPROTO_SCTP)
)

// serviceType declares the key of a service, which serviceKey loads.
func serviceType(f nft.Family) nft.Fields {
	return nft.Types(nft.TypeAddr(f), nft.TypeInetProto, nft.TypeInetService)
}

func serviceKey(f nft.Family) []nft.Expr {
	return []nft.Expr{nft.Daddr(f), nft.L4Proto(), nft.ThDport()}
}

// addrSet returns a set of addresses.
func addrSet(f nft.Family, name string) *nft.Set {
	return &nft.Set{Name: name, Key: nft.Types(nft.TypeAddr(f))}
}

// serviceMap returns a verdict map by service.
func serviceMap(f nft.Family) *nft.Set {
	return &nft.Set{Name: "services", Key: serviceType(f), Verdicts: true}
}

// endpointMap returns a map by service and priority.
func endpointMap(f nft.Family) *nft.Set {
	addr := nft.TypeAddr(f)
	return &nft.Set{
		Name: "endpoints",
		Key:  nft.Types(addr, nft.TypeInetProto, nft.TypeInetService, nft.TypeClassID),
		Data: nft.Types(addr, nft.TypeInetService),
	}
}

// clientSet returns a set to which rules add clients.
func clientSet(f nft.Family, name string) *nft.Set {
	return &nft.Set{Name: name, Key: nft.Types(nft.TypeAddr(f), nft.TypeClassID), Dynamic: true, Size: 100}
}

// sourceSet returns a set of addresses by service.
func sourceSet(f nft.Family, name string) *nft.Set {
	addr := nft.TypeAddr(f)
	return &nft.Set{Name: name, Key: nft.Types(addr, nft.TypeInetService, addr)}
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

// endpointAddr returns the address and port of an endpoint.
func endpointAddr(f nft.Family) netip.AddrPort {
	if f == nft.IPv6 {
		return netip.MustParseAddrPort("[fd00:244::8]:8080")
	}
	return netip.MustParseAddrPort("10.244.1.8:8080")
}

// service returns the row of the i-th service.
func service(s *nft.Set, f nft.Family, i int, chain string) nft.Row {
	return nft.Row{Set: s, Key: nft.Tuple{}.Addr(vip(f, i)).Proto(tcp).Port(80), Verdict: nft.VerdictGoto(chain)}
}

// newServices commits a table with a map of services and two chains. It
// returns a batch of changes to the table, and the map.
func newServices(t testing.TB, c *nft.Conn, f nft.Family) (*nft.Batch, *nft.Set) {
	t.Helper()
	s := serviceMap(f)
	table := &nft.Table{
		Family: f, Name: "lb", Sets: []*nft.Set{s}, Chains: []*nft.Chain{{Name: "one"}, {Name: "two"}},
	}
	nstest.Commit(t, c, table)
	return nft.NewBatch(table), s
}

func commit(t testing.TB, c *nft.Conn, b *nft.Batch) {
	t.Helper()
	if err := c.Commit(b); err != nil {
		t.Fatal(err)
	}
}

// refused returns the problems of a refused commit.
func refused(t testing.TB, err error) []nft.Problem {
	t.Helper()
	var e *nft.CommitError
	if !errors.As(err, &e) {
		t.Fatalf("commit: got %v, want a CommitError", err)
	}
	return e.Problems
}

// checkProblem commits a batch that must have one problem. It returns the
// problem.
func checkProblem(t testing.TB, c *nft.Conn, b *nft.Batch, want string) nft.Problem {
	t.Helper()
	problems := refused(t, c.Commit(b))
	if len(problems) != 1 || problems[0].String() != want {
		t.Errorf("got  %.300v\nwant %.300s", problems, want)
	}
	return problems[0]
}

func generation(t testing.TB, c *nft.Conn) uint32 {
	t.Helper()
	gen, err := c.Generation()
	if err != nil {
		t.Fatal(err)
	}
	if gen == 0 {
		t.Fatal("got generation 0")
	}
	return gen
}
