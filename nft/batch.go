package nft

import (
	"cmp"
	"encoding/binary"
	"slices"
	"sort"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
	"github.com/nftproxy/nftproxy/nft/notation"
)

// Batch collects changes to one table. Conn.Commit applies all of them in one
// transaction, in the order in which they were added, or none.
//
// A Batch can be used again after Reset, which keeps its memory. It must not
// be used by several goroutines at the same time.
//
// A change that the kernel or nft could not interpret is recorded when it is
// added. Commit then returns a *CommitError.
type Batch struct {
	table    *Table
	w        messageWriter
	messages []sentMessage
	tags     []tagMark
	isolated bool
	rows     int
	refused  []Problem

	// The set to which the last message adds rows, or from which it deletes
	// them, while it accepts more rows.
	openSet    *Set
	openListAt int

	expect uint32 // expected generation, 0 for any
}

// sentMessage describes a message of the batch, for errors.
type sentMessage struct {
	at     int    // offset in the buffer
	op     string // as nft writes it
	object string // name of the object, "" for the table
	rule   *Rule  // rule that is added to the chain
	handle uint64 // handle of a rule of the chain
	set    *Set   // set of the rows
}

// objectText returns the object that a message changes.
func (b *Batch) objectText(m *sentMessage) string {
	switch {
	case m.set != nil:
		return m.set.Name
	case m.rule != nil:
		return m.object + " " + m.rule.Text(b.table.Family)
	case m.handle != 0:
		return m.object + " handle " + strconv.FormatUint(m.handle, 10)
	}
	return m.object
}

// last returns the last message, which must exist.
func (b *Batch) last() *sentMessage { return &b.messages[len(b.messages)-1] }

// tagMark assigns a tag to the contents of the buffer after an offset.
type tagMark struct {
	at  int
	tag uint32
}

// NewBatch returns an empty batch of changes to the table.
func NewBatch(table *Table) *Batch { return &Batch{table: table} }

// Reset removes all changes from the batch, and the effects of Tag, Expect
// and Isolate. It keeps the table and the memory, as much as the largest
// transaction needed.
func (b *Batch) Reset() {
	clear(b.messages) // release sets and rules
	*b = Batch{
		table:    b.table,
		w:        messageWriter{nfnetlink.Writer{Buf: b.w.Buf[:0]}},
		messages: b.messages[:0],
		tags:     b.tags[:0],
	}
}

// Grow reserves n bytes. A batch that grows row by row needs a multiple of its
// size meanwhile.
func (b *Batch) Grow(n int) { b.w.Buf = slices.Grow(b.w.Buf, n) }

// Len returns the size of the batch in bytes.
func (b *Batch) Len() int { return len(b.w.Buf) }

// RowCount returns the number of rows that the batch adds and deletes.
func (b *Batch) RowCount() int { return b.rows }

// Empty reports whether the batch has no changes.
func (b *Batch) Empty() bool { return len(b.messages) == 0 }

// Expect makes the commit fail with ErrGeneration, without any change, unless
// the ruleset has generation gen. 0 stands for any generation.
func (b *Batch) Expect(gen uint32) { b.expect = gen }

// Tag sets the tag of the changes that are added next. Problems with these
// changes carry it. 0 means no tag.
func (b *Batch) Tag(tag uint32) {
	if n := len(b.tags); n > 0 && b.tags[n-1].tag == tag {
		return
	}
	if b.isolated {
		b.closeRows()
	}
	b.start()
	b.tags = append(b.tags, tagMark{len(b.w.Buf), tag})
}

// HasTag reports whether the batch has changes with a tag.
func (b *Batch) HasTag(tag uint32) bool {
	for i, mark := range b.tags {
		end := len(b.w.Buf)
		if i+1 < len(b.tags) {
			end = b.tags[i+1].at
		}
		if mark.tag == tag && mark.at < end {
			return true
		}
	}
	return false
}

// Isolate puts rows with different tags into different messages until the
// next Reset. Problems then have a tag even if the kernel does not report
// which row of a message it refuses (Linux 5.10). Isolated batches are
// larger.
func (b *Batch) Isolate() { b.isolated = true }

// tagIn returns the tag of the contents between two offsets of the buffer, or
// 0 if they have several.
func (b *Batch) tagIn(from, to int) uint32 {
	i := sort.Search(len(b.tags), func(i int) bool { return b.tags[i].at > from })
	if i == 0 || (i < len(b.tags) && b.tags[i].at < to) {
		return 0
	}
	return b.tags[i-1].tag
}

// start writes the message that begins every batch, so that offsets are
// final.
func (b *Batch) start() {
	if len(b.w.Buf) == 0 {
		at := b.w.Begin(unix.NFNL_MSG_BATCH_BEGIN, 0, 0, unix.NFNL_SUBSYS_NFTABLES)
		b.w.Uint32(unix.NFNL_BATCH_GENID, 0) // finish writes the generation
		b.w.End(at)
	}
}

// add adds a message that adds an object, with the attributes that body writes.
func (b *Batch) add(kind *objectKind, m sentMessage, body func(w *messageWriter)) {
	m.op = kind.addition
	flags := uint16(unix.NLM_F_CREATE)
	if kind == kindRule {
		flags |= unix.NLM_F_APPEND
	} else {
		b.checkName(m.op, cmp.Or(m.object, b.table.Name))
	}
	b.message(kind, m, kind.add, flags, body)
}

// delete adds a message that deletes objects. op is the operation as nft writes
// it.
func (b *Batch) delete(op string, kind *objectKind, object string) {
	b.message(kind, sentMessage{op: op, object: object}, kind.delete, 0, func(*messageWriter) {})
}

// message adds a message about an object.
func (b *Batch) message(kind *objectKind, m sentMessage, typ, flags uint16, body func(w *messageWriter)) {
	b.closeRows()
	b.start()
	m.at = b.w.beginNFT(typ, flags, b.table.Family)
	b.messages = append(b.messages, m)
	b.w.names(kind, b.table, m.object)
	body(&b.w)
	b.w.End(m.at)
	b.refuseOverflow(m)
}

// maxRowsMessage is the size at which a message of rows ends. The list of
// rows is one attribute, which is limited to 64 KiB. A row takes less than 1
// KiB.
const maxRowsMessage = 60 << 10

// openRows makes the last message accept another row of the set.
func (b *Batch) openRows(op string, typ, flags uint16, s *Set) {
	b.rows++
	if b.openSet == s && b.last().op == op && len(b.w.Buf)-b.openListAt < maxRowsMessage {
		return
	}
	b.closeRows()
	b.start()
	b.openSet = s
	b.messages = append(b.messages, sentMessage{at: b.w.beginNFT(typ, flags, b.table.Family), op: op, set: s})
	b.w.names(kindRow, b.table, s.Name)
	b.openListAt = b.w.Nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
}

// closeRows completes the message that accepts rows, if any.
func (b *Batch) closeRows() {
	if b.openSet == nil {
		return
	}
	b.w.Unnest(b.openListAt)
	b.w.End(b.last().at)
	b.openSet = nil
	b.refuseOverflow(*b.last())
}

// refuseOverflow refuses the batch if the last message is too long for
// netlink.
func (b *Batch) refuseOverflow(m sentMessage) {
	if b.w.Overflow {
		b.refuse(m.op, b.objectText(&m), "longer than 65535 bytes, the limit of a netlink attribute")
		b.w.Overflow = false
	}
}

// checkName refuses names that nft cannot read. The kernel accepts any name,
// but nft could not load its own listing.
func (b *Batch) checkName(op string, name string) {
	switch {
	case !notation.IsName(name):
		b.refuse(op, name, "name must be a letter, _ or ., followed by letters, digits, _, ., / or -")
	case len(name) >= unix.NFT_NAME_MAXLEN:
		b.refuse(op, name, "name is longer than 255 bytes")
	}
}

// refuse records a change that cannot be encoded. Commit then refuses the
// batch.
func (b *Batch) refuse(op string, object, reason string) {
	p := Problem{Op: op, Object: object, Errno: unix.EINVAL, Message: reason}
	if n := len(b.tags); n > 0 {
		p.Tag = b.tags[n-1].tag
	}
	b.refused = append(b.refused, p)
}

// finish completes the batch and returns its bytes. More changes can be added
// afterwards.
func (b *Batch) finish() []byte {
	b.closeRows()
	binary.BigEndian.PutUint32(b.w.Buf[nfnetlink.HeaderLen+nfnetlink.AttrHeaderLen:], b.expect)
	// Only the last message requests an acknowledgement. The kernel reports
	// the errors of all messages anyway, and one acknowledgement per message
	// would overflow the receive buffer.
	if !b.Empty() {
		last := b.w.Buf[b.last().at:]
		flags := binary.NativeEndian.Uint16(last[nfnetlink.FlagsAt:])
		binary.NativeEndian.PutUint16(last[nfnetlink.FlagsAt:], flags|unix.NLM_F_ACK)
	}

	whole := b.w // b.w does not keep the message that ends the batch
	whole.End(whole.Begin(unix.NFNL_MSG_BATCH_END, 0, 0, unix.NFNL_SUBSYS_NFTABLES))
	b.w.Buf = whole.Buf[:len(b.w.Buf)]
	return whole.Buf
}

// beginSeq is the sequence number of the message that begins every batch.
const beginSeq = 1

// lastSeq returns the sequence number of the last message with a change.
func (b *Batch) lastSeq() uint32 { return beginSeq + uint32(len(b.messages)) }

// messageOf returns the message with a sequence number, and its bytes.
func (b *Batch) messageOf(seq uint32) (m sentMessage, body []byte, ok bool) {
	i := int(seq) - beginSeq - 1
	if i < 0 || i >= len(b.messages) {
		return m, nil, false
	}
	m = b.messages[i]
	n := int(binary.NativeEndian.Uint32(b.w.Buf[m.at:])) // the header begins with the length
	return m, b.w.Buf[m.at : m.at+n], true
}

// AddRow adds a row to its set. If the set has the row with the same data,
// nothing changes. The commit fails if the set has it with other data.
func (b *Batch) AddRow(r Row) {
	if reason := r.invalid(); reason != "" {
		b.refuse("add element", r.Set.Name+" "+r.KeyText(), reason)
		return
	}
	b.openRows("add element", kindRow.add, unix.NLM_F_CREATE, r.Set)
	elem := b.w.Nest(unix.NFTA_LIST_ELEM)
	b.w.rowKey(&r)
	switch {
	case r.Set.Verdicts:
		b.w.verdict(unix.NFTA_SET_ELEM_DATA, &r.Verdict)
	case r.Set.isMap():
		b.w.value(unix.NFTA_SET_ELEM_DATA, &r.Data, r.Set.Data.Len())
	}
	if r.Expires > 0 {
		b.w.Uint64(unix.NFTA_SET_ELEM_TIMEOUT, uint64(max(r.Expires.Milliseconds(), 1)))
	}
	b.w.comment(unix.NFTA_SET_ELEM_USERDATA, r.Comment)
	b.w.Unnest(elem)
}

// DeleteRow deletes the row with the key of r from its set. It ignores the
// data of r. The commit fails if the set has no such row.
func (b *Batch) DeleteRow(r Row) {
	if reason := r.invalidKey(); reason != "" {
		b.refuse("delete element", r.Set.Name+" "+r.KeyText(), reason)
		return
	}
	b.openRows("delete element", kindRow.delete, 0, r.Set)
	elem := b.w.Nest(unix.NFTA_LIST_ELEM)
	b.w.rowKey(&r)
	b.w.Unnest(elem)
}
