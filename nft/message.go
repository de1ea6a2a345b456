package nft

import (
	"encoding/binary"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// messageWriter appends netlink messages to a buffer. Sizes are patched in when a message or a nested
// attribute ends, so that nothing is copied.
type messageWriter struct {
	buf []byte
	seq uint32
}

const (
	nlmsgHeaderLen = 16
	nfgenmsgLen    = 4
	attrHeaderLen  = 4
)

// begin starts a message and returns where it starts.
func (w *messageWriter) begin(typ uint16, flags uint16, family Family, resID uint16) int {
	at := len(w.buf)
	w.seq++
	ne := binary.NativeEndian
	w.buf = append(w.buf, 0, 0, 0, 0) // length, see end
	w.buf = ne.AppendUint16(w.buf, typ)
	w.buf = ne.AppendUint16(w.buf, flags|unix.NLM_F_REQUEST)
	w.buf = ne.AppendUint32(w.buf, w.seq)
	w.buf = ne.AppendUint32(w.buf, 0) // port: the kernel fills it in
	w.buf = append(w.buf, byte(family), unix.NFNETLINK_V0)
	w.buf = binary.BigEndian.AppendUint16(w.buf, resID)
	return at
}

// beginNFT starts a message to nf_tables.
func (w *messageWriter) beginNFT(typ uint16, flags uint16, family Family) int {
	return w.begin(unix.NFNL_SUBSYS_NFTABLES<<8|typ, flags, family, 0)
}

// end completes the message that starts at at.
func (w *messageWriter) end(at int) {
	binary.NativeEndian.PutUint32(w.buf[at:], uint32(len(w.buf)-at))
}

func (w *messageWriter) bytes(typ uint16, value []byte) {
	w.header(typ, len(value))
	w.buf = append(w.buf, value...)
	w.pad()
}

// string writes a NUL-terminated string.
func (w *messageWriter) string(typ uint16, value string) {
	w.header(typ, len(value)+1)
	w.buf = append(w.buf, value...)
	w.buf = append(w.buf, 0)
	w.pad()
}

// u32 writes a number in network byte order.
func (w *messageWriter) u32(typ uint16, value uint32) {
	w.header(typ, 4)
	w.buf = binary.BigEndian.AppendUint32(w.buf, value)
}

func (w *messageWriter) header(typ uint16, n int) {
	w.buf = binary.NativeEndian.AppendUint16(w.buf, uint16(attrHeaderLen+n))
	w.buf = binary.NativeEndian.AppendUint16(w.buf, typ)
}

func (w *messageWriter) pad() {
	for len(w.buf)%4 != 0 {
		w.buf = append(w.buf, 0)
	}
}

// nest starts a nested attribute and returns where it starts.
func (w *messageWriter) nest(typ uint16) int {
	at := len(w.buf)
	w.header(typ|unix.NLA_F_NESTED, 0)
	return at
}

// unnest completes the nested attribute that starts at at.
func (w *messageWriter) unnest(at int) {
	binary.NativeEndian.PutUint16(w.buf[at:], uint16(len(w.buf)-at))
}

// value writes a value as the kernel's nft_data: nested, once more, as bytes.
func (w *messageWriter) value(typ uint16, t Tuple, length int) {
	at := w.nest(typ)
	w.bytes(unix.NFTA_DATA_VALUE, t.b[:length])
	w.unnest(at)
}

// expr writes an expression of a rule.
func (w *messageWriter) expr(family Family, e expr.Any) error {
	b, err := expr.Marshal(byte(family), e)
	if err != nil {
		return err
	}
	at := w.nest(unix.NFTA_LIST_ELEM)
	w.buf = append(w.buf, b...)
	w.unnest(at)
	return nil
}

// attrs calls f for each attribute of b. It stops at what is no whole attribute.
func attrs(b []byte, f func(typ uint16, value []byte)) {
	for len(b) >= attrHeaderLen {
		n := int(binary.NativeEndian.Uint16(b))
		if n < attrHeaderLen || n > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[attrHeaderLen:n])
		b = b[min(align4(n), len(b)):]
	}
}
