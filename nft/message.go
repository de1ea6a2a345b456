package nft

import (
	"errors"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// nftMessage returns the type of a message of nf_tables.
func nftMessage(typ uint16) uint16 { return unix.NFNL_SUBSYS_NFTABLES<<8 | typ }

// messageWriter appends messages to nf_tables to a buffer.
type messageWriter struct{ nfnetlink.Writer }

// beginNFT starts a message to nf_tables.
func (w *messageWriter) beginNFT(typ uint16, flags uint16, family Family) int {
	return w.Begin(nftMessage(typ), flags, family, 0)
}

// comment writes user data that consists of a comment. An empty comment
// writes no attribute.
func (w *messageWriter) comment(typ uint16, comment string) {
	c := storedComment(comment)
	if c == "" {
		return
	}
	w.Header(typ, len(c)+3)
	w.Buf = append(w.Buf, udataComment, uint8(len(c)+1))
	w.Buf = append(w.Buf, c...)
	w.Buf = append(w.Buf, 0)
	w.Pad()
}

// value writes the first length bytes of a tuple as nft_data.
func (w *messageWriter) value(typ uint16, t *Tuple, length int) {
	at := w.Nest(typ)
	w.Bytes(unix.NFTA_DATA_VALUE, t.b[:length])
	w.Unnest(at)
}

// verdict writes a verdict as nft_data.
func (w *messageWriter) verdict(typ uint16, v *Verdict) {
	data := w.Nest(typ)
	verdict := w.Nest(unix.NFTA_DATA_VERDICT)
	w.Uint32(unix.NFTA_VERDICT_CODE, uint32(v.code))
	if v.chain != "" {
		w.CString(unix.NFTA_VERDICT_CHAIN, v.chain)
	}
	w.Unnest(verdict)
	w.Unnest(data)
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
	at := w.Nest(unix.NFTA_LIST_ELEM)
	w.Buf = append(w.Buf, b...)
	w.Unnest(at)
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
	nftaElemKeyEnd    = 10 // 5.6
)

func eachAttr(b []byte, f func(typ uint16, value []byte)) { nfnetlink.EachAttr(b, f) }

func attr(b []byte, want uint16) []byte { return nfnetlink.Attr(b, want) }

func cString(b []byte) string { return unix.ByteSliceToString(b) }

func align4(n int) int { return nfnetlink.Align(n) }

func be32(b []byte) uint32 { return nfnetlink.Uint32(b) }

func be64(b []byte) uint64 { return nfnetlink.Uint64(b) }
