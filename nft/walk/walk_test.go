package walk_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// home is a host with the address 192.0.2.1 and the interfaces eth0 and veth1.
type home struct{}

func (home) RouteType(addr netip.Addr) (uint32, error) {
	if addr == netip.MustParseAddr("192.0.2.1") {
		return unix.RTN_LOCAL, nil
	}
	return unix.RTN_UNICAST, nil
}

func (home) Interface(netip.Addr) (string, error) { return "eth0", nil }

func (home) InterfaceIndex(name string) (uint32, error) {
	return map[string]uint32{"eth0": 2, "veth1": 3}[name], nil
}

func packet() walk.Packet {
	return walk.Packet{
		Source: netip.MustParseAddrPort("10.0.0.1:40000"), Destination: netip.MustParseAddrPort("192.0.2.1:80"),
		Protocol: unix.IPPROTO_TCP, In: walk.Interface{Name: "veth1"}, Mark: 0x10,
	}
}

// chains are the rules of a table without sets, by the names of its chains.
type chains map[string][]nft.Rule

func (c chains) Rules(chain string) ([]nft.Rule, error) { return c[chain], nil }

func (c chains) Set(name string) (*nft.Set, error) {
	return nil, fmt.Errorf("set %s does not exist", name)
}

func (c chains) Row(*nft.Set, nft.Tuple) (nft.Row, error) { return nft.Row{}, nil }

// rule returns a rule of expressions.
func rule(expressions ...expr.Any) nft.Rule {
	return nft.Rule{Expressions: expressions}
}

func verdict(kind expr.VerdictKind, chain ...string) expr.Any {
	return &expr.Verdict{Kind: kind, Chain: strings.Join(chain, "")}
}

func host(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// run returns the ends of a packet in the chain "base".
func run(t *testing.T, table walk.Table, p walk.Packet) string {
	t.Helper()
	ended, err := walk.New(table, home{}).Run(walk.NewPath(p), "base")
	if err != nil {
		t.Fatal(err)
	}
	actions := map[walk.Action]string{
		walk.Accepted: "accept", walk.Rejected: "reject", walk.Dropped: "drop", walk.Queued: "queue",
	}
	var ends []string
	for _, p := range ended {
		text := actions[p.End.Action]
		if p.End.By == nil {
			text = "policy"
		}
		if p.Unknown != nil {
			text += "?"
		} else {
			text += " " + p.Share.RatString()
		}
		ends = append(ends, text)
	}
	return strings.Join(ends, ", ")
}

// Each rule of testdata/facts.txt drops the packets that match it. The sets do
// not exist for the walk.
func TestFacts(t *testing.T) {
	c := loopback(t, netip.MustParsePrefix("127.0.0.0/8"))
	text, err := os.ReadFile("testdata/facts.txt")
	if err != nil {
		t.Fatal(err)
	}
	answered, unmarked, forwarded := packet(), packet(), packet()
	answered.Answered, answered.Translated = true, true
	unmarked.MarkUnknown, unmarked.In.Unknown = true, fmt.Errorf("hypothetical")
	unmarked.Source = netip.AddrPortFrom(unmarked.Source.Addr(), 0)
	forwarded.Out.Name = "eth0"
	untracked, pod := packet(), packet()
	untracked.Untracked, pod.In = true, walk.Interface{Unknown: walk.ErrNewInterface}
	anyone, reply := packet(), packet()
	anyone.ClientUnknown, reply.ClientUnknown, reply.Reply = true, true, true
	packets := map[string]walk.Packet{
		"syn": packet(), "answered": answered, "unmarked": unmarked, "forwarded": forwarded,
		"untracked": untracked, "pod": pod, "anyone": anyone, "reply": reply,
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		if len(fields) != 3 {
			continue
		}
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		family := map[bool]nft.Family{true: nft.Inet, false: nft.IPv4}[strings.Contains(fields[1], "nfproto")]
		err := nstest.NFT(t).Load("table " + family.String() +
			" t {\n quota q { over 1 bytes }\n ct timeout t { protocol tcp; policy = { syn_sent : 1 }; }\n" +
			"set s { type ipv4_addr; size 9; flags dynamic; }\n chain base { " + fields[1] + " drop; }\n}")
		if err != nil {
			t.Fatalf("%s: %v", fields[1], err)
		}
		rules, err := c.Rules(&nft.Table{Family: family, Name: "t"}, "base")
		if err != nil || len(rules) != 1 {
			t.Fatalf("%s: got rules %v, %v", fields[1], rules, err)
		}
		if got := run(t, chains{"base": rules}, packets[fields[0]]); got != fields[2] {
			t.Errorf("%s, %s packet: got %s, want %s", fields[1], fields[0], got, fields[2])
		}
	}
	unknown := rule(&nft.UnknownExpression{Name: "osf"}, verdict(expr.VerdictDrop))
	if got, want := run(t, chains{"base": {unknown}}, packet()), "drop?, policy?"; got != want {
		t.Errorf("unknown expression: got %s, want %s", got, want)
	}
}

// Paths that depend on unknown facts and reach the same state become one, so
// their number does not grow with the number of rules.
func TestMerge(t *testing.T) {
	base := make([]nft.Rule, 100)
	for i := range base {
		base[i] = rule(&expr.Limit{}, verdict(expr.VerdictJump, "other"))
	}
	table := chains{"base": base, "other": {rule(&expr.Limit{}, verdict(expr.VerdictReturn))}}
	if got, want := run(t, table, packet()), "policy?"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestVerdicts(t *testing.T) {
	table := chains{
		"base": {
			rule(verdict(expr.VerdictJump, "returns")), rule(verdict(expr.VerdictBreak), verdict(expr.VerdictDrop)),
			rule(&expr.Limit{}, verdict(expr.VerdictQueue)), rule(&expr.Limit{}, &expr.Queue{Num: 100, Total: 1}),
			rule(verdict(expr.VerdictGoto, "last")), rule(verdict(expr.VerdictAccept)),
		},
		"returns": {rule(verdict(expr.VerdictReturn)), rule(verdict(expr.VerdictDrop))},
		"last":    {rule(&expr.Reject{})},
	}
	if got, want := run(t, table, packet()), "queue?, queue?, reject?"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Matches of iptables, with the structures of their headers.
func TestExtensions(t *testing.T) {
	ports := func(first, last, size, invertAt int, invert byte) []byte {
		data := make([]byte, size)
		binary.NativeEndian.PutUint16(data[2:], 65535)
		binary.NativeEndian.PutUint16(data[4:], uint16(first))
		binary.NativeEndian.PutUint16(data[6:], uint16(last))
		data[invertAt] = invert
		return data
	}
	multiport := make([]byte, 48)
	multiport[0], multiport[1] = 1, 2
	binary.NativeEndian.PutUint16(multiport[2:], 22)
	binary.NativeEndian.PutUint16(multiport[4:], 80)
	addrtype := make([]byte, 8)
	binary.NativeEndian.PutUint16(addrtype[2:], 1<<unix.RTN_LOCAL)
	conntrack := make([]byte, 160)
	binary.NativeEndian.PutUint16(conntrack[146:], 1)
	binary.NativeEndian.PutUint16(conntrack[150:], 8)
	tests := []struct {
		nft.Extension
		want string
	}{
		{nft.Extension{Name: "comment"}, "drop 1"},
		{nft.Extension{Name: "frag"}, "policy 1"},
		{nft.Extension{Name: "statistic"}, "drop?, policy?"},
		{nft.Extension{Name: "state", Data: host(8)}, "drop 1"},
		{nft.Extension{Name: "mark", Revision: 1, Data: append(append(host(0), host(0x0f)...), 0)}, "drop 1"},
		{nft.Extension{Name: "tcp", Data: ports(80, 80, 12, 11, 0)}, "drop 1"},
		{nft.Extension{Name: "tcp", Data: ports(80, 80, 12, 11, 2)}, "policy 1"},
		{nft.Extension{Name: "udp", Data: ports(53, 79, 10, 8, 0)}, "policy 1"},
		{nft.Extension{Name: "multiport", Revision: 1, Data: multiport}, "drop 1"},
		{nft.Extension{Name: "addrtype", Revision: 1, Data: addrtype}, "drop 1"},
		{nft.Extension{Name: "conntrack", Revision: 3, Data: conntrack}, "drop 1"},
		{nft.Extension{Target: true, Name: "REJECT"}, "reject 1"},
		{nft.Extension{Target: true, Name: "MARK", Revision: 2, Data: append(host(0), host(0)...)}, "drop 1"},
		{nft.Extension{Target: true, Name: "LOG"}, "drop 1"},
		{nft.Extension{Target: true, Name: "NFQUEUE"}, "queue 1"},
		{nft.Extension{Target: true, Name: "TEE"}, "drop?, policy?"},
	}
	for _, test := range tests {
		table := chains{"base": {rule(&test.Extension, verdict(expr.VerdictDrop))}}
		if got := run(t, table, packet()); got != test.want {
			t.Errorf("%s %v: got %s, want %s", test.Name, test.Data, got, test.want)
		}
	}
}
