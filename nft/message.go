package nft

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Sizes of headers, and the largest length of an attribute.
const (
	nlmsgHeaderLen = 16
	nfgenmsgLen    = 4
	attrHeaderLen  = nfnetlink.AttrHeaderLen
	maxAttr        = math.MaxUint16
)

// Offsets of the fields of a message header (struct nlmsghdr).
const (
	lengthAt = 0
	typeAt   = 4
	flagsAt  = 6
	seqAt    = 8
	portAt   = 12
)

// nftMessage returns the type of a message of nf_tables.
func nftMessage(typ uint16) uint16 { return unix.NFNL_SUBSYS_NFTABLES<<8 | typ }

// messageWriter appends netlink messages to a buffer. It writes the length of
// a message or nested attribute when that ends, so that nothing is copied.
type messageWriter struct {
	buf []byte
	seq uint32
	// overflow is set if an attribute became longer than maxAttr.
	overflow bool
}

// begin starts a message and returns its offset.
func (w *messageWriter) begin(typ uint16, flags uint16, family Family, resID uint16) int {
	at := len(w.buf)
	w.seq++
	ne := binary.NativeEndian
	w.buf = append(w.buf, 0, 0, 0, 0) // the length, which end writes
	w.buf = ne.AppendUint16(w.buf, typ)
	w.buf = ne.AppendUint16(w.buf, flags|unix.NLM_F_REQUEST)
	w.buf = ne.AppendUint32(w.buf, w.seq)
	w.buf = ne.AppendUint32(w.buf, 0) // the port, which the kernel sets
	w.buf = append(w.buf, byte(family), unix.NFNETLINK_V0)
	w.buf = binary.BigEndian.AppendUint16(w.buf, resID)
	return at
}

// beginNFT starts a message to nf_tables.
func (w *messageWriter) beginNFT(typ uint16, flags uint16, family Family) int {
	return w.begin(nftMessage(typ), flags, family, 0)
}

// end completes the message that starts at offset at.
func (w *messageWriter) end(at int) {
	binary.NativeEndian.PutUint32(w.buf[at+lengthAt:], uint32(len(w.buf)-at))
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

// u64 writes a number in network byte order.
func (w *messageWriter) u64(typ uint16, value uint64) {
	w.header(typ, 8)
	w.buf = binary.BigEndian.AppendUint64(w.buf, value)
}

// comment writes user data that consists of a comment. An empty comment
// writes no attribute.
func (w *messageWriter) comment(typ uint16, comment string) {
	c := storedComment(comment)
	if c == "" {
		return
	}
	w.header(typ, len(c)+3)
	w.buf = append(w.buf, udataComment, uint8(len(c)+1))
	w.buf = append(w.buf, c...)
	w.buf = append(w.buf, 0)
	w.pad()
}

// header starts an attribute with a value of n bytes.
func (w *messageWriter) header(typ uint16, n int) {
	w.overflow = w.overflow || attrHeaderLen+n > maxAttr
	w.buf = binary.NativeEndian.AppendUint16(w.buf, uint16(attrHeaderLen+n))
	w.buf = binary.NativeEndian.AppendUint16(w.buf, typ)
}

func (w *messageWriter) pad() {
	for len(w.buf)%4 != 0 {
		w.buf = append(w.buf, 0)
	}
}

// nest starts a nested attribute and returns its offset.
func (w *messageWriter) nest(typ uint16) int {
	at := len(w.buf)
	w.header(typ|unix.NLA_F_NESTED, 0)
	return at
}

// unnest completes the nested attribute that starts at offset at.
func (w *messageWriter) unnest(at int) {
	n := len(w.buf) - at
	w.overflow = w.overflow || n > maxAttr
	binary.NativeEndian.PutUint16(w.buf[at:], uint16(n))
}

// value writes the first length bytes of a tuple as nft_data.
func (w *messageWriter) value(typ uint16, t *Tuple, length int) {
	at := w.nest(typ)
	w.bytes(unix.NFTA_DATA_VALUE, t.b[:length])
	w.unnest(at)
}

// verdict writes a verdict as nft_data.
func (w *messageWriter) verdict(typ uint16, v *Verdict) {
	data := w.nest(typ)
	verdict := w.nest(unix.NFTA_DATA_VERDICT)
	w.u32(unix.NFTA_VERDICT_CODE, uint32(v.code))
	if v.chain != "" {
		w.string(unix.NFTA_VERDICT_CHAIN, v.chain)
	}
	w.unnest(verdict)
	w.unnest(data)
}

// expr writes an expression of a rule.
func (w *messageWriter) expr(family Family, e expr.Any) error {
	switch e := e.(type) {
	case *invalidExpression:
		return errors.New(e.reason)
	case *Extension, *UnknownExpression:
		return errors.New("the expression is unknown")
	}
	b, err := expr.Marshal(byte(family), e)
	if err != nil {
		return err
	}
	at := w.nest(unix.NFTA_LIST_ELEM)
	w.buf = append(w.buf, b...)
	w.unnest(at)
	return nil
}

// Attributes of linux/netfilter/nf_tables.h that golang.org/x/sys/unix does
// not define, with the Linux version that introduced them.
const (
	nftaTableHandle   = 4  // 4.17
	nftaTableUserdata = 6  // 5.10
	nftaSetHandle     = 16 // 4.17
	nftaSetExpr       = 17 // 5.7
	nftaObjHandle     = 6  // 4.17
	nftaSetCount      = 20 // 6.15
	nftaSetDescConcat = 2  // 5.6
	nftaSetFieldLen   = 1  // 5.6
	nftaElemKeyEnd    = 10 // 5.6
)

func eachAttr(b []byte, f func(typ uint16, value []byte)) { nfnetlink.EachAttr(b, f) }

func attr(b []byte, want uint16) []byte { return nfnetlink.Attr(b, want) }

func cString(b []byte) string { return nfnetlink.CString(b) }

func align4(n int) int { return nfnetlink.Align(n) }

// be32 decodes a number in network byte order. It returns 0 if b has another
// length.
func be32(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// be64 is be32 for 64 bits.
func be64(b []byte) uint64 {
	if len(b) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}
