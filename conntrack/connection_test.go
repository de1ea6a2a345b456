package conntrack

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Select finds connections with their endpoints and states, whichever filters
// the kernel applies.
func TestSelect(t *testing.T) {
	inLabs(t, func(t *testing.T, l *lab) {
		vip := netip.AddrPortFrom(l.vip, 53)
		direct, endpoint := l.endpoints[1], l.endpoints[0]
		translated, untranslated, silent := l.newClient(t, 40001), l.newClient(t, 40002), l.newClient(t, 40003)
		l.translate(t, rule{vip, endpoint})
		wantReply(t, translated, vip, endpoint)
		untranslated.ask(direct)
		unused := netip.AddrPortFrom(l.addr(2, 9), 53)
		l.translate(t, rule{vip, unused})
		silent.send(vip)
		l.await(t, silent.addr)

		first := Connection{udp, translated.addr, vip, endpoint, "REPLIED"}
		second := Connection{udp, untranslated.addr, direct, direct, "REPLIED"}
		third := Connection{udp, silent.addr, vip, unused, "UNREPLIED"}
		for _, tc := range []struct {
			selection Selection
			want      []Connection
		}{
			{Selection{Family: l.family, Protocol: udp}, []Connection{first, second, third}},
			{Selection{Family: l.family, Protocol: udp, Addr: l.vip, Port: 53}, []Connection{first, third}},
			{Selection{Family: l.family, Translated: true}, []Connection{first, third}},
			{Selection{Family: l.family, Protocol: udp, Addr: direct.Addr(), Port: direct.Port()},
				[]Connection{second}},
			{Selection{Family: l.family, Protocol: tcp}, nil},
		} {
			got, read := selectAll(t, l.conn, tc.selection)
			if !slices.Equal(got, tc.want) {
				t.Errorf("%+v: got %v\nwant %v", tc.selection, got, tc.want)
			}
			t.Logf("Linux %s: %+v: read %d, selected %d", kernelRelease(), tc.selection, read, len(got))
		}
	})
}

// selectAll returns the selected connections by client. Connections of the
// kernel itself are left out.
func selectAll(t *testing.T, c *Conn, s Selection) (all []Connection, read int) {
	t.Helper()
	read, err := c.Select(t.Context(), s, func(found Connection) {
		if found.Protocol == udp || found.Protocol == tcp {
			all = append(all, found)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b Connection) int { return a.Client.Compare(b.Client) })
	return all, read
}

// A context that ends also ends the dump. The next one is complete.
func TestSelectCanceled(t *testing.T) {
	ns := newNamespace(t)
	flows := manyFlows(1000)
	ns.injector(t).add(t, flows...)
	c := ns.open(t)
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	_, err := c.Select(ctx, Selection{Family: IPv4}, func(Connection) {
		n++
		cancel()
	})
	if !errors.Is(err, context.Canceled) || n != 1 {
		t.Errorf("got %d connections, %v, want 1 and an error", n, err)
	}
	if all, _ := selectAll(t, c, Selection{Family: IPv4}); len(all) != len(flows) {
		t.Errorf("got %d connections, want %d", len(all), len(flows))
	}
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
		{unix.IPPROTO_SCTP, state(ctaProtoInfoSCTP, 4), "ESTABLISHED"},
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
