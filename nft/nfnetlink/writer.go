package nfnetlink

import (
	"encoding/binary"
	"math"
	"net/netip"

	"golang.org/x/sys/unix"
)

// maxAttr is the largest length of an attribute.
const maxAttr = math.MaxUint16

// Writer appends netlink messages to Buf. It writes the length of a message or
// nested attribute when that ends, so that nothing is copied.
type Writer struct {
	Buf []byte
	// Seq is the sequence number of the last message.
	Seq uint32
	// Overflow is set if an attribute became longer than 65535 bytes.
	Overflow bool
}

// Begin starts a message of nfnetlink and returns its offset.
func (w *Writer) Begin(typ, flags uint16, family Family, resID uint16) int {
	at := len(w.Buf)
	w.Seq++
	ne := binary.NativeEndian
	w.Buf = append(w.Buf, 0, 0, 0, 0) // the length, which End writes
	w.Buf = ne.AppendUint16(w.Buf, typ)
	w.Buf = ne.AppendUint16(w.Buf, flags|unix.NLM_F_REQUEST)
	w.Buf = ne.AppendUint32(w.Buf, w.Seq)
	w.Buf = ne.AppendUint32(w.Buf, 0) // the port, which the kernel sets
	w.Buf = append(w.Buf, byte(family), unix.NFNETLINK_V0)
	w.Buf = binary.BigEndian.AppendUint16(w.Buf, resID)
	return at
}

// End completes the message that starts at offset at.
func (w *Writer) End(at int) {
	binary.NativeEndian.PutUint32(w.Buf[at+lengthAt:], uint32(len(w.Buf)-at))
}

// Bytes writes an attribute.
func (w *Writer) Bytes(typ uint16, value []byte) {
	w.Header(typ, len(value))
	w.Buf = append(w.Buf, value...)
	w.Pad()
}

// CString writes a NUL-terminated string.
func (w *Writer) CString(typ uint16, value string) {
	w.Header(typ, len(value)+1)
	w.Buf = append(w.Buf, value...)
	w.Buf = append(w.Buf, 0)
	w.Pad()
}

// Uint8 writes a number.
func (w *Writer) Uint8(typ uint16, value uint8) {
	w.Header(typ, 1)
	w.Buf = append(w.Buf, value, 0, 0, 0)
}

// Uint16 writes a number in network byte order.
func (w *Writer) Uint16(typ, value uint16) {
	w.Header(typ, 2)
	w.Buf = append(w.Buf, byte(value>>8), byte(value), 0, 0)
}

// Uint32 writes a number in network byte order.
func (w *Writer) Uint32(typ uint16, value uint32) {
	w.Header(typ, 4)
	w.Buf = binary.BigEndian.AppendUint32(w.Buf, value)
}

// Uint64 writes a number in network byte order.
func (w *Writer) Uint64(typ uint16, value uint64) {
	w.Header(typ, 8)
	w.Buf = binary.BigEndian.AppendUint64(w.Buf, value)
}

// Addr writes an address, with the type of the attribute for its family.
func (w *Writer) Addr(typ4, typ6 uint16, addr netip.Addr) {
	if addr.Is4() {
		a := addr.As4()
		w.Bytes(typ4, a[:])
		return
	}
	a := addr.As16()
	w.Bytes(typ6, a[:])
}

// Header starts an attribute with a value of n bytes.
func (w *Writer) Header(typ uint16, n int) {
	w.Overflow = w.Overflow || AttrHeaderLen+n > maxAttr
	w.Buf = binary.NativeEndian.AppendUint16(w.Buf, uint16(AttrHeaderLen+n))
	w.Buf = binary.NativeEndian.AppendUint16(w.Buf, typ)
}

// Pad completes an attribute.
func (w *Writer) Pad() {
	for len(w.Buf)%4 != 0 {
		w.Buf = append(w.Buf, 0)
	}
}

// Nest starts a nested attribute and returns its offset.
func (w *Writer) Nest(typ uint16) int {
	at := len(w.Buf)
	w.Header(typ|unix.NLA_F_NESTED, 0)
	return at
}

// Unnest completes the nested attribute that starts at offset at.
func (w *Writer) Unnest(at int) {
	n := len(w.Buf) - at
	w.Overflow = w.Overflow || n > maxAttr
	binary.NativeEndian.PutUint16(w.Buf[at:], uint16(n))
}
