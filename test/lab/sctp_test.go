package lab

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestSCTPChecksum(t *testing.T) {
	// The check value of CRC-32/ISCSI, another name of CRC32c.
	if got := crcOf([]byte("123456789")); got != 0xe3069283 {
		t.Fatalf("CRC32c of the check string: %#x", got)
	}
	// Bytes 8 to 11 are the checksum field.
	if got, want := sctpChecksum([]byte("123456781234abcdef")), crcOf([]byte("12345678\x00\x00\x00\x00abcdef")); got != want {
		t.Errorf("checksum: %#x, want %#x", got, want)
	}
}

// crcOf computes CRC32c bit by bit, from its definition (RFC 9260, appendix A).
func crcOf(data []byte) uint32 {
	crc := ^uint32(0)
	for _, b := range data {
		crc ^= uint32(b)
		for range 8 {
			crc = crc>>1 ^ 0x82f63b78&-(crc&1)
		}
	}
	return ^crc
}

func sctpLab(t *testing.T) (client *Namespace, pod *Pod) {
	t.Helper()
	l, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if pod, err = l.Node2.AddPod("pod"); err != nil {
		t.Fatal(err)
	}
	return l.Client, pod
}

func capture(t *testing.T, ns *Namespace) *SCTPCapture {
	t.Helper()
	c, err := ns.CaptureSCTP()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func next(t *testing.T, c *SCTPCapture) SCTPPacket {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	packet, err := c.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return packet
}

func TestSCTPInitArrives(t *testing.T) {
	client, pod := sctpLab(t)
	at := capture(t, pod.Namespace)
	for i, addr := range pod.Addrs() {
		from, to := netip.AddrPortFrom(client.Addrs()[i], 40000), netip.AddrPortFrom(addr, 80)
		for _, source := range []netip.AddrPort{from, netip.AddrPortFrom(netip.Addr{}, 40000)} {
			if err := client.SendSCTPInit(source, to); err != nil {
				t.Fatal(err)
			}
			want := SCTPPacket{Event: SCTPInit, Source: from, Destination: to, ChecksumValid: true}
			if got := next(t, at); got != want {
				t.Errorf("arrived: %+v, want %+v", got, want)
			}
		}
	}
	if err := client.SendSCTPInit(netip.MustParseAddrPort("10.1.2.3:1"), netip.AddrPortFrom(pod.IPv4, 80)); err == nil {
		t.Error("an INIT could be sent from an address that the client does not have")
	}
}

func TestSCTPRefusalsReturn(t *testing.T) {
	client, pod := sctpLab(t)
	at, atSender := capture(t, client), capture(t, pod.Namespace)
	for i, addr := range pod.Addrs() {
		sender := client.Addrs()[i]
		init := sctpInitPacket(40000, 80)
		sent := SCTPPacket{Source: netip.AddrPortFrom(sender, 40000), Destination: netip.AddrPortFrom(addr, 80)}

		abort := abortFor(init)
		if err := pod.Do(func() error { return sendRaw(unix.IPPROTO_SCTP, netip.Addr{}, sender, abort) }); err != nil {
			t.Fatal(err)
		}
		want := SCTPPacket{Event: SCTPAbort, Source: sent.Destination, Destination: sent.Source, ChecksumValid: true}
		if got := next(t, at); got != want {
			t.Errorf("arrived: %+v, want %+v", got, want)
		}

		abort[len(abort)-1]++
		protocol, unreachable := portUnreachable(sent, init)
		err := pod.Do(func() error {
			if err := sendRaw(unix.IPPROTO_SCTP, netip.Addr{}, sender, abort); err != nil {
				return err
			}
			return sendRaw(protocol, netip.Addr{}, sender, unreachable)
		})
		if err != nil {
			t.Fatal(err)
		}
		want.ChecksumValid = false
		if got := next(t, at); got != want {
			t.Errorf("arrived: %+v, want %+v", got, want)
		}
		sent.Event = SCTPPortUnreachable
		if got := next(t, at); got != sent {
			t.Errorf("arrived: %+v, want %+v", got, sent)
		}
	}
	// What the pod sent did not arrive there: the first that does is an INIT.
	if err := client.SendSCTPInit(netip.AddrPort{}, netip.AddrPortFrom(pod.IPv4, 80)); err != nil {
		t.Fatal(err)
	}
	if got := next(t, atSender); got.Event != SCTPInit {
		t.Errorf("arrived: %+v, want an INIT", got)
	}
}

func TestCaptureEndsWithItsContext(t *testing.T) {
	client, _ := sctpLab(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if packet, err := capture(t, client).Next(ctx); err == nil {
		t.Errorf("arrived, though nothing was sent: %+v", packet)
	}
}

func TestParseSCTPOfAnyLength(t *testing.T) {
	sent := SCTPPacket{Source: netip.MustParseAddrPort("10.0.0.1:1"), Destination: netip.MustParseAddrPort("10.0.0.2:2")}
	init := sctpInitPacket(1, 2)
	protocol, unreachable := portUnreachable(sent, init)
	for _, packet := range [][]byte{
		ipHeader(sent, unix.IPPROTO_SCTP, init),
		ipHeader(sent, protocol, unreachable),
	} {
		if _, ok := parseSCTP(packet); !ok {
			t.Errorf("not understood: %x", packet)
		}
		for length := range packet {
			if parsed, ok := parseSCTP(packet[:length]); ok && parsed.ChecksumValid {
				t.Errorf("%d of %d bytes have a valid checksum", length, len(packet))
			}
		}
	}
}

// abortFor makes the packet that refuses an INIT.
func abortFor(init []byte) []byte {
	packet := make([]byte, sctpHeaderLen+4)
	copy(packet[0:2], init[2:4])
	copy(packet[2:4], init[0:2])
	copy(packet[4:8], init[sctpHeaderLen+4:]) // its initiate tag
	packet[sctpHeaderLen] = sctpAbort
	packet[sctpHeaderLen+3] = 4
	binary.LittleEndian.PutUint32(packet[8:], crcOf(packet))
	return packet
}

// portUnreachable makes the ICMP error that quotes a packet. In IPv6 the kernel
// fills in the checksum.
func portUnreachable(sent SCTPPacket, payload []byte) (protocol int, message []byte) {
	quoted := ipHeader(sent, unix.IPPROTO_SCTP, payload)
	if sent.Source.Addr().Is6() {
		return unix.IPPROTO_ICMPV6, append([]byte{1, 4, 0, 0, 0, 0, 0, 0}, quoted...)
	}
	message = append([]byte{3, 3, 0, 0, 0, 0, 0, 0}, quoted...)
	var sum uint32
	for i := 0; i < len(message); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(message[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(message[2:], ^uint16(sum+sum>>16))
	return unix.IPPROTO_ICMP, message
}

// ipHeader puts an IP header before a payload.
func ipHeader(sent SCTPPacket, protocol int, payload []byte) []byte {
	source, destination := sent.Source.Addr().AsSlice(), sent.Destination.Addr().AsSlice()
	var header []byte
	if sent.Source.Addr().Is4() {
		header = []byte{0x45, 0, 0, byte(20 + len(payload)), 0, 0, 0, 0, 64, byte(protocol), 0, 0}
	} else {
		header = []byte{0x60, 0, 0, 0, 0, byte(len(payload)), byte(protocol), 64}
	}
	return bytes.Join([][]byte{header, source, destination, payload}, nil)
}
