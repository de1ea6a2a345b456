package conntrack

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// ctaTimeout is an attribute of a flow (enum ctattr_type).
const ctaTimeout = 7

// statusAssured is IPS_SEEN_REPLY, IPS_ASSURED and IPS_CONFIRMED.
const statusAssured = 1<<1 | 1<<2 | 1<<3

// injector adds flows to the table, as conntrackd does.
type injector struct {
	*socket
}

func (ns namespace) injector(t testing.TB) injector {
	t.Helper()
	var s *socket
	ns.Do(func() {
		var err error
		if s, err = openSocket(unix.NETLINK_NETFILTER, answerLen); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(func() { s.close() })
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
	var b []byte
	for i, flow := range flows {
		flags := uint16(unix.NLM_F_REQUEST | unix.NLM_F_CREATE | unix.NLM_F_EXCL)
		if i == len(flows)-1 {
			flags |= unix.NLM_F_ACK
		}
		b = appendNew(b, flags, in.nextSeq(), flow)
	}
	if err := in.send(b); err != nil {
		return err
	}
	for {
		b, err := in.receive()
		if err != nil {
			return err
		}
		h, payload, _, err := nextMessage(b)
		if err == nil {
			err = messageError(payload)
		}
		if err != nil || h.Seq == in.seq {
			return err
		}
	}
}

func appendNew(b []byte, flags uint16, seq uint32, flow trackedFlow) []byte {
	start := len(b)
	b = appendMessage(b, header{Type: messageNew, Flags: flags, Seq: seq}, flow.family())
	if flow.protocol == tcp && flow.translated() {
		b = appendTranslation(b, flow.reply.src)
		flow.reply.src = flow.original.dst
	}
	b = appendFlow(b, flow)
	b = appendUint32(b, ctaTimeout, 3600)
	return endMessage(b, start)
}

// appendTranslation appends CTA_NAT_DST, so that the kernel knows that it
// translates the destination.
func appendTranslation(b []byte, to netip.AddrPort) []byte {
	const ctaNATDst, protocol, portMin, portMax = 13, 3, 1, 2
	b, nat := openNest(b, ctaNATDst)
	for _, kind := range []uint16{1, 2} { // the first and the last address; 4 and 5 for IPv6
		b = appendAddr(b, kind, kind+3, to.Addr())
	}
	b, nest := openNest(b, protocol)
	b = appendUint16(appendUint16(b, portMin, to.Port()), portMax, to.Port())
	return closeNest(closeNest(b, nest), nat)
}

// appendFlow appends the attributes of an assured flow in the format of a
// dump.
func appendFlow(b []byte, flow trackedFlow) []byte {
	zones := [3]uint16{}
	zones[flow.zone.direction] = flow.zone.id
	b = appendTuple(b, ctaTupleOrig, flow.protocol, flow.original, zones[zoneOriginal])
	b = appendTuple(b, ctaTupleReply, flow.protocol, flow.reply, zones[zoneReply])
	if zones[zoneBoth] != 0 {
		b = appendUint16(b, ctaZone, zones[zoneBoth])
	}
	b = appendUint32(b, ctaStatus, statusAssured)
	return appendUint32(b, ctaID, flow.id)
}
