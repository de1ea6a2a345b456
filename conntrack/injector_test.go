package conntrack

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// ctaTimeout is an attribute of a flow (enum ctattr_type).
const ctaTimeout = 7

// statusAssured is IPS_SEEN_REPLY, IPS_ASSURED and IPS_CONFIRMED.
const statusAssured = 1<<1 | 1<<2 | 1<<3

// injector adds flows to the table, as conntrackd does.
type injector struct{ socket *nfnetlink.Socket }

func (ns namespace) injector(t testing.TB) injector {
	t.Helper()
	var s *nfnetlink.Socket
	ns.Do(func() {
		var err error
		if s, err = nfnetlink.Open(unix.NETLINK_NETFILTER, receiveBuffer); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { s.Close() })
	return injector{s}
}

// add adds flows, in batches of 128.
func (in injector) add(t testing.TB, flows ...trackedFlow) {
	t.Helper()
	for len(flows) > 0 {
		n := min(len(flows), 128)
		if err := in.addBatch(flows[:n]); err != nil {
			t.Fatalf("add flows: %v", err)
		}
		flows = flows[n:]
	}
}

func (in injector) addBatch(flows []trackedFlow) error {
	w := nfnetlink.Writer{Seq: in.socket.Seq}
	for i, flow := range flows {
		flags := uint16(unix.NLM_F_CREATE | unix.NLM_F_EXCL)
		if i == len(flows)-1 {
			flags |= unix.NLM_F_ACK
		}
		writeNew(&w, flags, flow)
	}
	return in.socket.Request(&w, func(nfnetlink.Message) error { return nil })
}

func writeNew(w *nfnetlink.Writer, flags uint16, flow trackedFlow) {
	at := w.Begin(messageNew, flags, flow.family(), 0)
	if flow.protocol == tcp && flow.translated() {
		writeTranslation(w, flow.reply.src)
		flow.reply.src = flow.original.dst
	}
	writeFlow(w, flow)
	w.Uint32(ctaTimeout, 3600)
	w.End(at)
}

// writeTranslation writes CTA_NAT_DST, so that the kernel knows that it
// translates the destination.
func writeTranslation(w *nfnetlink.Writer, to netip.AddrPort) {
	const ctaNATDst, protocol, portMin, portMax = 13, 3, 1, 2
	nat := w.Nest(ctaNATDst)
	for _, kind := range []uint16{1, 2} { // the first and the last address; 4 and 5 for IPv6
		w.Addr(kind, kind+3, to.Addr())
	}
	nest := w.Nest(protocol)
	w.Uint16(portMin, to.Port())
	w.Uint16(portMax, to.Port())
	w.Unnest(nest)
	w.Unnest(nat)
}

// writeFlow writes the attributes of an assured flow in the format of a dump.
func writeFlow(w *nfnetlink.Writer, flow trackedFlow) {
	zones := [3]uint16{}
	zones[flow.zone.direction] = flow.zone.id
	writeTuple(w, ctaTupleOrig, flow.protocol, flow.original, zones[zoneOriginal])
	writeTuple(w, ctaTupleReply, flow.protocol, flow.reply, zones[zoneReply])
	if zones[zoneBoth] != 0 {
		w.Uint16(ctaZone, zones[zoneBoth])
	}
	w.Uint32(ctaStatus, statusAssured)
	w.Uint32(ctaID, flow.id)
}
