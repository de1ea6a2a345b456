package explain

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// packet is the hypothetical packet at one point of its way.
type packet struct {
	family       nft.Family
	source, dest netip.Addr
	protocol     uint8
	port         uint16 // of the destination
	mark         uint32
	translated   bool // its destination
	passage           // for the rules of other tables
}

// field is a header field that rules can load.
type field struct {
	name           string
	offset, length uint32
}

// fieldOf returns the header field that a payload expression loads, or the
// beginning of which it loads.
func fieldOf(f nft.Family, e *expr.Payload) (field, error) {
	var fields []field
	switch {
	case e.Base == expr.PayloadBaseTransportHeader:
		fields = []field{{"dport", 2, 2}}
	case e.Base == expr.PayloadBaseNetworkHeader && f == nft.IPv4:
		fields = []field{{"saddr", 12, 4}, {"daddr", 16, 4}}
	case e.Base == expr.PayloadBaseNetworkHeader:
		fields = []field{{"saddr", 8, 16}, {"daddr", 24, 16}}
	}
	for _, known := range fields {
		if e.OperationType == expr.PayloadLoad && e.Offset == known.offset && e.Len <= known.length {
			return known, nil
		}
	}
	return field{}, fmt.Errorf("bytes %d to %d of header %d are unknown", e.Offset, e.Offset+e.Len, e.Base)
}

func (p *packet) payload(e *expr.Payload) ([]byte, error) {
	known, err := fieldOf(p.family, e)
	if err != nil {
		return nil, err
	}
	var value []byte
	switch known.name {
	case "saddr":
		value = p.source.AsSlice()
	case "daddr":
		value = p.dest.AsSlice()
	case "dport":
		value = binary.BigEndian.AppendUint16(nil, p.port)
	}
	return value[:e.Len], nil
}

// States and status bits of connections
// (linux/netfilter/nf_conntrack_common.h).
const (
	ctStateNew  = 1 << 3
	ctStatusNAT = 1 << 5 // of the destination
)

func (p *packet) connection(key expr.CtKey) ([]byte, error) {
	switch key {
	case expr.CtKeySTATE:
		return hostBytes(ctStateNew), nil
	case expr.CtKeySTATUS:
		if p.translated {
			return hostBytes(ctStatusNAT), nil
		}
		return hostBytes(0), nil
	}
	return nil, fmt.Errorf("ct key %d is unknown", key)
}

func hostBytes(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// interfaceName returns the value of `meta iifname`.
func interfaceName(name string) []byte {
	value := make([]byte, unix.IFNAMSIZ)
	copy(value, name)
	return value
}
