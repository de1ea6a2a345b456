package walk_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// hashes is a table whose chain looks a key up. It records the keys.
type hashes struct {
	set  *nft.Set
	rule nft.Rule
	keys map[nft.Tuple]bool
}

func (h *hashes) Rules(string) ([]nft.Rule, error) { return []nft.Rule{h.rule}, nil }
func (h *hashes) Set(string) (*nft.Set, error)     { return h.set, nil }
func (h *hashes) Row(_ *nft.Set, key nft.Tuple) (nft.Row, error) {
	h.keys[key] = true
	return nft.Row{}, nil
}

// The kernel and the walk compute the same hashes: of addresses, and of
// addresses and ports. The kernel adds them to sets.
func TestHashes(t *testing.T) {
	for f, network := range map[nft.Family]string{nft.IPv4: "127.0.0.0/8", nft.IPv6: "2001:db8::/64"} {
		for _, client := range [][]nft.Expr{{nft.Saddr(f)}, {nft.Saddr(f), nft.ThSport()}} {
			for _, mod := range []uint32{1, 251, 1<<32 - 10} {
				hash := nft.Jhash(mod, 0x5eed, 9, client...)
				t.Run(hash.String(), func(t *testing.T) { testHash(t, f, netip.MustParsePrefix(network), hash) })
			}
		}
	}
}

func testHash(t *testing.T, f nft.Family, network netip.Prefix, hash nft.Expr) {
	c := loopback(t, network)
	// The source port makes the keys of clients with equal hashes differ.
	key := []nft.Expr{nft.L4Proto(), nft.ThSport(), nft.Priority()}
	set := &nft.Set{Name: "hashes", Key: nft.Types(nft.TypeInetProto, nft.TypeInetService, nft.TypeClassID),
		Dynamic: true, Size: 1 << 12}
	table := &nft.Table{Family: f, Name: "test", Sets: []*nft.Set{set}, Chains: []*nft.Chain{{
		Name:  "output",
		Hook:  &nft.Hook{Type: nft.ChainTypeNAT, Point: nft.Output},
		Rules: []nft.Rule{nft.NewRule(nft.CtStateNew(), nft.SetPriority(hash), nft.Update(set, time.Hour, key...))},
	}}}
	nstest.Commit(t, c, table)
	want := &hashes{set, nft.NewRule(nft.SetPriority(hash), nft.In(set, key...)), make(map[nft.Tuple]bool)}
	const clients = 300
	for i := range clients {
		p := walk.Packet{Protocol: unix.IPPROTO_UDP,
			Source:      netip.AddrPortFrom(clientAddr(network, i), uint16(10000+i*7)),
			Destination: netip.AddrPortFrom(clientAddr(network, clients), 9)}
		send(t, p)
		if _, err := walk.New(want, home{}).Run(walk.NewPath(p), "base"); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := c.Rows(table, set)
	if err != nil || len(rows) != clients {
		t.Fatalf("the kernel has %d rows, %v; want %d", len(rows), err, clients)
	}
	for _, r := range rows {
		if !want.keys[r.Key] {
			t.Fatalf("the kernel hashed to a key that the walk does not have: %s", r)
		}
	}
}

// clientAddr returns an address of a network, with many different bits.
func clientAddr(network netip.Prefix, i int) netip.Addr {
	bytes := network.Addr().AsSlice()
	n := len(bytes)
	bytes[n-1], bytes[n-2], bytes[n-3] = byte(i+1), byte(i>>3), byte(i*37)
	addr, _ := netip.AddrFromSlice(bytes)
	return addr
}

// send sends a packet of UDP.
func send(t *testing.T, p walk.Packet) {
	t.Helper()
	conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(p.Source), net.UDPAddrFromAddrPort(p.Destination))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn, "x"); err != nil {
		t.Fatal(err)
	}
}

// loopback moves the test to a new network namespace, in which all addresses of
// a network are local.
func loopback(t *testing.T, network netip.Prefix) *nft.Conn {
	t.Helper()
	nstest.Enter(t)
	for _, args := range [][]string{
		{"link", "set", "lo", "up"}, {"route", "replace", "local", network.String(), "dev", "lo"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv6/ip_nonlocal_bind", []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	return nstest.Open(t)
}
