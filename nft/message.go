package nft

import (
	"errors"
	"log/slog"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
	"github.com/nftproxy/nftproxy/nft/notation"
)

// nftMessage returns the type of a message of nf_tables.
func nftMessage(typ uint16) uint16 { return unix.NFNL_SUBSYS_NFTABLES<<8 | typ }

// messageWriter appends messages to nf_tables to a buffer.
type messageWriter struct{ nfnetlink.Writer }

// beginNFT starts a message to nf_tables.
func (w *messageWriter) beginNFT(typ uint16, flags uint16, family Family) int {
	return w.Begin(nftMessage(typ), flags, family, 0)
}

// objectKind is a kind of objects that the kernel adds, reads and deletes by
// their names.
type objectKind struct {
	name, addition   string // addition is the operation as nft writes it
	add, get, delete uint16 // messages
	// Attributes: the name of the table, the name of the object (of a rule: of
	// its chain; of a row: of its set; 0 for a table), and the handle.
	table, object, handle uint16
}

var (
	kindTable = &objectKind{"table", "add table",
		unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_GETTABLE, unix.NFT_MSG_DELTABLE,
		unix.NFTA_TABLE_NAME, 0, nftaTableHandle}
	kindChain = &objectKind{"chain", "add chain",
		unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_DELCHAIN,
		unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME, unix.NFTA_CHAIN_HANDLE}
	kindSet = &objectKind{"set", "add set",
		unix.NFT_MSG_NEWSET, unix.NFT_MSG_GETSET, unix.NFT_MSG_DELSET,
		unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME, nftaSetHandle}
	kindCounter = &objectKind{"counter", "add counter",
		unix.NFT_MSG_NEWOBJ, unix.NFT_MSG_GETOBJ, unix.NFT_MSG_DELOBJ,
		unix.NFTA_OBJ_TABLE, unix.NFTA_OBJ_NAME, nftaObjHandle}
	kindCtTimeout = &objectKind{"ct timeout", "add ct timeout",
		unix.NFT_MSG_NEWOBJ, unix.NFT_MSG_GETOBJ, unix.NFT_MSG_DELOBJ,
		unix.NFTA_OBJ_TABLE, unix.NFTA_OBJ_NAME, nftaObjHandle}
	kindRule = &objectKind{"rule", "add rule",
		unix.NFT_MSG_NEWRULE, unix.NFT_MSG_GETRULE, unix.NFT_MSG_DELRULE,
		unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN, unix.NFTA_RULE_HANDLE}
	kindRow = &objectKind{"element", "add element",
		unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_GETSETELEM, unix.NFT_MSG_DELSETELEM,
		unix.NFTA_SET_ELEM_LIST_TABLE, unix.NFTA_SET_ELEM_LIST_SET, 0}
)

// names writes the attributes that identify an object.
func (w *messageWriter) names(kind *objectKind, t *Table, object string) {
	w.CString(kind.table, t.Name)
	if kind.object != 0 {
		w.CString(kind.object, object)
	}
	switch kind {
	case kindCounter:
		w.Uint32(unix.NFTA_OBJ_TYPE, unix.NFT_OBJECT_COUNTER)
	case kindCtTimeout:
		w.Uint32(unix.NFTA_OBJ_TYPE, unix.NFT_OBJECT_CT_TIMEOUT)
	}
}

// rowKey writes the key of a row into its element. In a set whose keys are
// ranges of several fields, it is also the last key.
func (w *messageWriter) rowKey(r *Row) {
	w.value(unix.NFTA_SET_ELEM_KEY, &r.Key, r.Set.Key.Len())
	if r.Set.ranges {
		w.value(nftaElemKeyEnd, &r.Key, r.Set.Key.Len())
	}
}

// comment writes user data that consists of a comment. An empty comment
// writes no attribute.
func (w *messageWriter) comment(typ uint16, comment string) {
	c := notation.Comment(comment)
	if c == "" {
		return
	}
	w.Header(typ, notation.CommentSize(c))
	w.Buf = notation.AppendComment(w.Buf, c)
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

// exprCounter is the name of the expression that counts packets.
const exprCounter = "counter"

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

func be32(b []byte) uint32 { return nfnetlink.Uint32(b) }

func be64(b []byte) uint64 { return nfnetlink.Uint64(b) }

// parseTuple returns the value in an nft_data, or the empty Tuple.
func parseTuple(data []byte) Tuple {
	value := attr(data, unix.NFTA_DATA_VALUE)
	if len(value) > maxTuple {
		return Tuple{}
	}
	return Tuple{}.append(value)
}

// parseVerdict returns the verdict in an nft_data, or the zero Verdict.
func parseVerdict(data []byte) Verdict {
	v := attr(data, unix.NFTA_DATA_VERDICT)
	return newVerdict(int32(be32(attr(v, unix.NFTA_VERDICT_CODE))), cString(attr(v, unix.NFTA_VERDICT_CHAIN)))
}

// describe returns the type of a message of nf_tables and the objects in it,
// for the log of messages (see nfnetlink.Socket).
func describe(msg nfnetlink.Message) (typ string, objects []slog.Attr) {
	const subsystem = 8 // bits before the subsystem
	number := msg.Type() & (1<<subsystem - 1)
	if msg.Type()>>subsystem != unix.NFNL_SUBSYS_NFTABLES || int(number) >= len(messageNames) ||
		len(msg) < nfnetlink.HeaderLen {
		return "", nil
	}
	attributes := msg.Attributes()
	for _, kind := range []*objectKind{kindTable, kindChain, kindSet, kindCounter, kindRule, kindRow} {
		if number != kind.add && number != kind.get && number != kind.delete {
			continue
		}
		if kind == kindCounter && be32(attr(attributes, unix.NFTA_OBJ_TYPE)) == unix.NFT_OBJECT_CT_TIMEOUT {
			kind = kindCtTimeout
		}
		family := Family(msg[nfnetlink.MessageHeaderLen])
		if name := cString(attr(attributes, kind.table)); name != "" {
			objects = append(objects, slog.String("table", family.String()+" "+name))
		}
		if name := attr(attributes, kind.object); kind.object != 0 && name != nil {
			objects = append(objects, slog.String(kind.objectName(), cString(name)))
		}
		if kind == kindRow {
			rows := 0
			eachAttr(attr(attributes, unix.NFTA_SET_ELEM_LIST_ELEMENTS), func(uint16, []byte) { rows++ })
			objects = append(objects, slog.Int("rows", rows))
		}
	}
	return messageNames[number], objects
}

// objectName returns what the name in messages of this kind names.
func (k *objectKind) objectName() string {
	switch k {
	case kindRule:
		return kindChain.name
	case kindRow:
		return kindSet.name
	}
	return k.name
}

// messageNames are the types of messages (enum nf_tables_msg_types).
var messageNames = strings.Fields(`
	NFT_MSG_NEWTABLE NFT_MSG_GETTABLE NFT_MSG_DELTABLE
	NFT_MSG_NEWCHAIN NFT_MSG_GETCHAIN NFT_MSG_DELCHAIN
	NFT_MSG_NEWRULE NFT_MSG_GETRULE NFT_MSG_DELRULE
	NFT_MSG_NEWSET NFT_MSG_GETSET NFT_MSG_DELSET
	NFT_MSG_NEWSETELEM NFT_MSG_GETSETELEM NFT_MSG_DELSETELEM
	NFT_MSG_NEWGEN NFT_MSG_GETGEN NFT_MSG_TRACE
	NFT_MSG_NEWOBJ NFT_MSG_GETOBJ NFT_MSG_DELOBJ
`)
