package walk_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/walk"
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
	actions := map[walk.Action]string{walk.Accepted: "accept", walk.Rejected: "reject", walk.Dropped: "drop"}
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

// Each comparison is the first part of a rule that drops the packet.
func TestFacts(t *testing.T) {
	payload := func(base expr.PayloadBase, offset uint32, data ...byte) []expr.Any {
		return []expr.Any{
			&expr.Payload{Base: base, Offset: offset, Len: uint32(len(data)), DestRegister: 1}, is(data...),
		}
	}
	meta := func(key expr.MetaKey, data []byte) []expr.Any {
		return []expr.Any{&expr.Meta{Key: key, Register: 1}, is(data...)}
	}
	ct := func(key expr.CtKey, data []byte) []expr.Any {
		return []expr.Any{&expr.Ct{Key: key, Register: 1}, is(data...)}
	}
	const network, transport = expr.PayloadBaseNetworkHeader, expr.PayloadBaseTransportHeader
	answered := packet()
	answered.Answered, answered.Translated = true, true
	unmarked := packet()
	unmarked.MarkUnknown, unmarked.In.Unknown = true, fmt.Errorf("hypothetical")
	unmarked.Source = netip.AddrPortFrom(unmarked.Source.Addr(), 0)
	random := &expr.Numgen{Register: 1, Modulus: 4, Offset: 1}
	const matches, differs, forks = "drop 1", "policy 1", "drop?, policy?"
	tests := []struct {
		name   string
		packet walk.Packet
		match  []expr.Any
		want   string
	}{
		{"saddr", packet(), payload(network, 12, 10, 0, 0, 1), matches},
		{"begin of daddr", packet(), payload(network, 16, 192, 0), matches},
		{"protocol", packet(), payload(network, 9, unix.IPPROTO_TCP), matches},
		{"ttl", packet(), payload(network, 8, 64), forks},
		{"ports", packet(), payload(transport, 0, 0x9c, 0x40, 0, 80), matches},
		{"unknown source port", unmarked, payload(transport, 0, 0x9c, 0x40), forks},
		{"dport", unmarked, payload(transport, 2, 0, 81), differs},
		{"SYN", packet(), payload(transport, 13, 2), matches},
		{"ACK", answered, payload(transport, 13, 16), matches},
		{"mark", packet(), meta(expr.MetaKeyMARK, host(0x10)), matches},
		{"unknown mark", unmarked, meta(expr.MetaKeyMARK, host(0x10)), forks},
		{"iifname", packet(), meta(expr.MetaKeyIIFNAME, []byte("veth")), matches},
		{"unknown iifname", unmarked, meta(expr.MetaKeyIIFNAME, []byte("veth")), forks},
		{"oif", packet(), meta(expr.MetaKeyOIF, host(0)), matches},
		{"iif", packet(), meta(expr.MetaKeyIIF, host(2)), differs},
		{"nfproto", packet(), meta(expr.MetaKeyNFPROTO, []byte{unix.NFPROTO_IPV4}), matches},
		{"skuid", packet(), meta(expr.MetaKeySKUID, host(0)), forks},
		{"ct state new", packet(), ct(expr.CtKeySTATE, host(8)), matches},
		{"ct state established", answered, ct(expr.CtKeySTATE, host(2)), matches},
		{"ct status", answered, ct(expr.CtKeySTATUS, host(1<<5|1<<1)), matches},
		{"ct mark", answered, ct(expr.CtKeyMARK, host(0)), forks},
		{"fib type", packet(), []expr.Any{
			&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true}, is(host(unix.RTN_LOCAL)...),
		}, matches},
		{"fib saddr . iif oif missing", packet(), []expr.Any{
			&expr.Fib{Register: 1, FlagSADDR: true, FlagIIF: true, ResultOIF: true, FlagPRESENT: true}, is(0),
		}, matches},
		{"mask of an unknown value", packet(), []expr.Any{
			&expr.Numgen{Register: 1, Modulus: 4}, &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4},
			is(host(0)...),
		}, forks},
		{"range", packet(), []expr.Any{
			&expr.Payload{Base: transport, Offset: 2, Len: 2, DestRegister: 1},
			&expr.Range{Op: expr.CmpOpEq, Register: 1, FromData: []byte{0, 80}, ToData: []byte{0, 90}},
		}, matches},
		{"random", packet(), []expr.Any{random, is(host(4)...)}, "drop 1/4, policy 3/4"},
		{"impossible number", packet(), []expr.Any{random, is(host(0)...)}, differs},
		{"hash of an unknown port", unmarked, []expr.Any{
			&expr.Payload{Base: transport, Len: 2, DestRegister: 1},

			&expr.Hash{SourceRegister: 1, DestRegister: 1, Length: 2, Modulus: 4, Type: expr.HashTypeJenkins},
			is(host(3)...),
		}, "drop 1/4, policy 3/4"},
		{"hash of the flow", packet(), []expr.Any{
			&expr.Hash{DestRegister: 1, Modulus: 4, Offset: 1, Type: expr.HashTypeSym}, is(host(0)...),
		}, differs},
		{"limit", packet(), []expr.Any{&expr.Limit{}}, forks},
		{"unknown expression", packet(), []expr.Any{&nft.UnknownExpression{Name: "osf"}}, forks},
		{"log", packet(), []expr.Any{&nft.UnknownExpression{Name: "log"}}, matches},
		{"quota", packet(), []expr.Any{&expr.Objref{Type: unix.NFT_OBJECT_QUOTA}}, forks},
		{"update", packet(), []expr.Any{&expr.Dynset{SetName: "s"}}, matches},
		{"update with a limit", packet(), []expr.Any{&expr.Dynset{SetName: "s", Exprs: []expr.Any{&expr.Limit{}}}},
			forks},
		{"unknown set", packet(), []expr.Any{&expr.Lookup{SourceRegister: 1, SetName: "s"}}, forks},
		{"mark that a rule sets", packet(), append([]expr.Any{
			&expr.Immediate{Register: 1, Data: host(7)},
			&expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: true},
		}, meta(expr.MetaKeyMARK, host(7))...), matches},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			table := chains{"base": {rule(append(test.match, verdict(expr.VerdictDrop))...)}}
			if got := run(t, table, test.packet); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// is compares register 1 with a constant.
func is(data ...byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: data} }

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
			rule(verdict(expr.VerdictQueue)), rule(verdict(expr.VerdictGoto, "last")),
			rule(verdict(expr.VerdictAccept)),
		},
		"returns": {rule(verdict(expr.VerdictReturn)), rule(verdict(expr.VerdictDrop))},
		"last":    {rule(&expr.Reject{})},
	}
	if got, want := run(t, table, packet()), "reject?"; got != want {
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
		{nft.Extension{Name: "mark", Revision: 1, Data: append(append(host(0x10), host(0xff)...), 0)}, "drop 1"},
		{nft.Extension{Name: "tcp", Data: ports(80, 80, 12, 11, 0)}, "drop 1"},
		{nft.Extension{Name: "tcp", Data: ports(80, 80, 12, 11, 2)}, "policy 1"},
		{nft.Extension{Name: "udp", Data: ports(53, 79, 10, 8, 0)}, "policy 1"},
		{nft.Extension{Name: "multiport", Revision: 1, Data: multiport}, "drop 1"},
		{nft.Extension{Name: "addrtype", Revision: 1, Data: addrtype}, "drop 1"},
		{nft.Extension{Name: "conntrack", Revision: 3, Data: conntrack}, "drop 1"},
		{nft.Extension{Target: true, Name: "REJECT"}, "reject 1"},
		{nft.Extension{Target: true, Name: "LOG"}, "drop 1"},
		{nft.Extension{Target: true, Name: "NFQUEUE"}, "drop?, policy?"},
	}
	for _, test := range tests {
		table := chains{"base": {rule(&test.Extension, verdict(expr.VerdictDrop))}}
		if got := run(t, table, packet()); got != test.want {
			t.Errorf("%s %v: got %s, want %s", test.Name, test.Data, got, test.want)
		}
	}
}
