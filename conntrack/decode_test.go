package conntrack

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// dumpedFlow has the attributes of a message of Linux 6.18: a UDP flow in zone
// 7 from 10.1.0.2:40000 to 10.96.0.10:53 that was translated to 10.2.0.2:5353,
// without a reply.
const dumpedFlow = "" +
	"34000180" + "14000180" + "08000100" + "0a010002" + "08000200" + "0a60000a" +
	"1c000280" + "05000100" + "11000000" + "06000200" + "9c400000" + "06000300" + "00350000" +
	"34000280" + "14000180" + "08000100" + "0a020002" + "08000200" + "0a010002" +
	"1c000280" + "05000100" + "11000000" + "06000200" + "14e90000" + "06000300" + "9c400000" +
	"08000300" + "00000028" + // status
	"08000700" + "0000001e" + // timeout
	"08000800" + "00000001" + // mark
	"08000c00" + "1b2c3d4e" + // id
	"08000b00" + "00000001" + // use
	"06001200" + "00070000" // zone

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// filterFlows returns flows that differ in each field that filters use.
func filterFlows() (flows []trackedFlow) {
	for line := range strings.Lines(`udp 10.0.0.1:4000 -> 10.96.0.10:53 -> 10.244.0.5:53
udp 10.0.0.1:4001 -> 10.96.0.11:53 -> 10.244.0.5:53
udp 10.0.0.1:4002 -> 10.96.0.10:54 -> 10.244.0.6:53
tcp 10.0.0.1:4000 -> 10.96.0.10:53 -> 10.244.0.5:53
udp 10.0.0.2:4000 -> 10.96.0.10:53 -> 10.244.0.5:53 zone 7
udp 10.0.0.2:4000 -> 10.96.0.10:53 -> 10.244.0.6:53 original zone 8
udp 10.0.0.3:4000 -> 10.96.0.10:53 -> 10.244.0.5:53 reply zone 9
udp [fd00::1]:4000 -> [fd96::10]:53 -> [fd24::5]:53
udp [fd00::1]:4001 -> [fd96::11]:53 -> [fd24::5]:53
udp [fd00::1]:4002 -> [fd96::10]:54 -> [fd24::6]:53
tcp [fd00::1]:4000 -> [fd96::10]:53 -> [fd24::5]:53
udp [fd00::2]:4000 -> [fd96::10]:53 -> [fd24::5]:53 zone 7`) {
		flows = append(flows, parseFlow(line))
	}
	return flows
}

func TestDecodeFlow(t *testing.T) {
	want := parseFlow("udp 10.1.0.2:40000 -> 10.96.0.10:53 -> 10.2.0.2:5353 zone 7")
	want.id, want.status = 0x1b2c3d4e, 0x28
	got, err := decodeFlow(unhex(t, dumpedFlow))
	if err != nil || got != want {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	for _, flow := range filterFlows() {
		flow.id, flow.status = 0x01020304, statusAssured
		got, err := decodeFlow(flowPayload(flow))
		if err != nil || got != flow {
			t.Errorf("got %+v, %v\nwant %+v", got, err, flow)
		}
	}
}

func flowPayload(flow trackedFlow) []byte {
	var w nfnetlink.Writer
	writeFlow(&w, flow)
	return w.Buf
}

func TestDecodeFlowErrors(t *testing.T) {
	for name, message := range map[string]string{
		"empty":                    "",
		"short header":             "020000",
		"one tuple only":           strings.Replace(dumpedFlow, "34000280", "34003f80", 1),
		"attribute too long":       "09000c00" + "1b2c3d4e",
		"attribute without length": "00000c00" + "1b2c3d4e",
		"id of two bytes":          "06000c00" + "1b2c0000",
		"address of two bytes":     "0e000180" + "0a000180" + "06000100" + "0a010000",
		"mixed families":           strings.Replace(dumpedFlow, "08000200"+"0a60000a", "08003f00"+"0a60000a", 1),
	} {
		if flow, err := decodeFlow(unhex(t, message)); err == nil {
			t.Errorf("%s: got %+v, want an error", name, flow)
		}
	}
}

// An attribute of an unexpected length changes nothing but its own field, which
// is 0. Without an address there is no flow.
func TestDecodeFlowLengths(t *testing.T) {
	message := unhex(t, dumpedFlow)
	want, err := decodeFlow(message)
	if err != nil {
		t.Fatal(err)
	}
	port0 := func(a *netip.AddrPort) { *a = netip.AddrPortFrom(a.Addr(), 0) }
	without := []func(*trackedFlow){ // by leaf; nil for addresses
		nil, nil, func(f *trackedFlow) { f.protocol = 17 }, // the number in the other tuple counts
		func(f *trackedFlow) { port0(&f.original.src) }, func(f *trackedFlow) { port0(&f.original.dst) },
		nil, nil, func(f *trackedFlow) { f.protocol = 0 },
		func(f *trackedFlow) { port0(&f.reply.src) }, func(f *trackedFlow) { port0(&f.reply.dst) },
		func(f *trackedFlow) { f.status = 0 }, func(*trackedFlow) {}, func(*trackedFlow) {}, // status, timeout, mark
		func(f *trackedFlow) { f.id = 0 }, func(*trackedFlow) {}, func(f *trackedFlow) { f.zone = zone{} },
	}
	for leaf, change := range without {
		for length := range 20 {
			n := leaf
			b, same := resized(message, &n, length)
			wanted := want
			if !same && change == nil {
				wanted = trackedFlow{}
			} else if !same {
				change(&wanted)
			}
			flow, err := decodeFlow(slices.Clip(b))
			if flow != wanted || (err != nil) != (wanted == trackedFlow{}) {
				t.Errorf("leaf %d of %d bytes: got %+v, %v\nwant %+v", leaf, length, flow, err, wanted)
			}
		}
	}
	n := len(without)
	if resized(message, &n, 0); n != 0 {
		t.Errorf("%d leaves are not tested", -n)
	}
}

// resized returns attributes in which one leaf has another length. It subtracts
// the number of leaves from leaf.
func resized(b []byte, leaf *int, length int) (out []byte, same bool) {
	nfnetlink.EachAttrAt(b, 0, func(_ uint16, from, to int) {
		value := b[from+nfnetlink.AttrHeaderLen : to]
		if typ := binary.NativeEndian.Uint16(b[from+2:]); typ&unix.NLA_F_NESTED != 0 {
			var inner bool
			value, inner = resized(value, leaf, length)
			same = same || inner
		} else {
			if *leaf == 0 {
				same = len(value) == length
				value = append(slices.Clone(value), make([]byte, length)...)[:length]
			}
			*leaf--
		}
		out = binary.NativeEndian.AppendUint16(out, uint16(nfnetlink.AttrHeaderLen+len(value)))
		out = append(append(out, b[from+2:from+4]...), value...)
		out = append(out, make([]byte, nfnetlink.Align(len(out))-len(out))...)
	})
	return out, same
}

// The state is the state of the protocol, or whether an answer was seen.
func TestStateName(t *testing.T) {
	state := func(kind uint16, state uint8) []byte {
		var w nfnetlink.Writer
		info := w.Nest(ctaProtoInfo)
		nest := w.Nest(kind)
		w.Uint8(ctaState, state)
		w.Unnest(nest)
		w.Unnest(info)
		return w.Buf
	}
	status := func(bits uint32) []byte {
		var w nfnetlink.Writer
		w.Uint32(ctaStatus, bits)
		return w.Buf
	}
	for _, tc := range []struct {
		protocol   uint8
		attributes []byte
		want       string
	}{
		{tcp, state(ctaProtoInfoTCP, 1), "SYN_SENT"},
		{tcp, state(ctaProtoInfoTCP, 3), "ESTABLISHED"},
		{tcp, state(ctaProtoInfoTCP, 7), "TIME_WAIT"},
		{tcp, state(ctaProtoInfoTCP, 99), "STATE99"},
		{tcp, status(statusAssured), "NONE"},
		{tcp, status(statusAssured | statusSeenReply | statusOffload), "OFFLOAD"},
		{sctp, state(ctaProtoInfoSCTP, 4), "ESTABLISHED"},
		{udp, status(statusAssured), "REPLIED"},
		{udp, status(1 << 3), "UNREPLIED"},
		{udp, nil, "UNREPLIED"},
	} {
		flow := trackedFlow{protocol: tc.protocol}
		nfnetlink.EachAttr(tc.attributes, flow.setAttr)
		if got := flow.stateName(); got != tc.want {
			t.Errorf("protocol %d, %x: got %s, want %s", tc.protocol, tc.attributes, got, tc.want)
		}
	}
}

func TestDecodeFlowDoesNotAllocate(t *testing.T) {
	b := unhex(t, dumpedFlow)
	if n := testing.AllocsPerRun(100, func() { decodeFlow(b) }); n != 0 {
		t.Errorf("got %v allocations per flow, want 0", n)
	}
}

// A decoded flow can be encoded and decoded again. decodeFlow does not
// modify the buffer.
func FuzzDecodeFlow(f *testing.F) {
	f.Add(unhex(f, dumpedFlow))
	for _, flow := range filterFlows() {
		f.Add(flowPayload(flow))
	}
	for n := range len(dumpedFlow) / 8 {
		f.Add(unhex(f, dumpedFlow[:8*n]))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		flow, err := decodeFlow(b)
		if !bytes.Equal(b, before) {
			t.Fatalf("got buffer %x, want %x", b, before)
		}
		if err != nil {
			return
		}
		if flow.zone.id == 0 {
			flow.zone.direction = zoneBoth // zone 0 has no attribute
		}
		again, err := decodeFlow(flowPayload(flow))
		again.status = flow.status
		if err != nil || again != flow {
			t.Errorf("got %+v, %v\nwant %+v", again, err, flow)
		}
	})
}

// No input makes Messages and decodeFlow panic or loop.
func FuzzMessages(f *testing.F) {
	b := message(messageNew, 0, 1, func(w *nfnetlink.Writer) { w.Buf = append(w.Buf, unhex(f, dumpedFlow)...) })
	f.Add(b)
	f.Add([]byte{16, 0, 0, 0, 3, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		for msg, err := range nfnetlink.Messages(b) {
			if err != nil {
				return
			}
			if flow, err := decodeFlow(msg.Attributes()); err == nil {
				_ = flow.String()
			}
		}
	})
}
