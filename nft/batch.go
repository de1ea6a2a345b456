package nft

import (
	"encoding/binary"
	"sort"
	"strconv"

	"golang.org/x/sys/unix"
)

// Batch collects changes to one table that Conn.Commit carries out in one transaction: all or none,
// in the order in which they were added. A Batch can be used again after Reset, which keeps its memory.
// It is not safe for use by several goroutines at once.
//
// What the kernel or nft could not make sense of is noted when it is added, and refused by Commit: that is a *CommitError, too.
type Batch struct {
	table    *Table
	w        messageWriter
	messages []sentMessage
	tags     []tagMark
	isolated bool
	rows     int
	refused  []Problem

	// The message of rows that is open for more rows, if any.
	openSet    *Set
	openOp     operation
	openAt     int
	openListAt int

	expect uint32 // generation; 0: any
}

// sentMessage remembers what a message of the batch is about, to name it in errors.
type sentMessage struct {
	at     int // offset in the buffer
	op     operation
	object string // name of a set or chain, "" for the table
	rule   *Rule  // added to the chain
	handle uint64 // of a rule of the chain
	set    *Set   // whose rows these are
}

func (m *sentMessage) objectText() string {
	switch {
	case m.set != nil:
		return m.set.Name
	case m.rule != nil:
		return m.object + " " + m.rule.String()
	case m.handle != 0:
		return m.object + " handle " + strconv.FormatUint(m.handle, 10)
	}
	return m.object
}

// tagMark says that what comes after offset at belongs to tag.
type tagMark struct {
	at  int
	tag uint32
}

type operation uint8

const (
	opAddTable operation = iota
	opDeleteTable
	opAddSet
	opDeleteSet
	opFlushSet
	opAddChain
	opDeleteChain
	opFlushChain
	opAddRule
	opDeleteRule
	opAddRow
	opDeleteRow
)

// String returns the operation as nft names it.
func (o operation) String() string {
	return [...]string{
		"add table", "delete table", "add set", "delete set", "flush set", "add chain", "delete chain", "flush chain",
		"add rule", "delete rule", "add element", "delete element",
	}[o]
}

// NewBatch returns an empty batch of changes to the table.
func NewBatch(table *Table) *Batch { return &Batch{table: table} }

// Reset empties the batch: what was added, Tag, Expect and Isolate. It keeps the table, and the memory, which is as much as the largest
// transaction took.
func (b *Batch) Reset() {
	clear(b.messages) // which hold sets and rules
	*b = Batch{
		table:    b.table,
		w:        messageWriter{buf: b.w.buf[:0]},
		messages: b.messages[:0],
		tags:     b.tags[:0],
	}
}

// Len returns the number of bytes that the batch has so far.
func (b *Batch) Len() int { return len(b.w.buf) }

// Rows returns the number of rows that are added and deleted.
func (b *Batch) Rows() int { return b.rows }

// Empty says whether the batch changes nothing.
func (b *Batch) Empty() bool { return len(b.messages) == 0 }

// Expect makes the commit fail with ErrGeneration, and change nothing, unless the generation of the host's ruleset is gen: unless
// nobody committed anything since. 0 stands for any generation.
func (b *Batch) Expect(gen uint32) { b.expect = gen }

// Tag marks what is added next as belonging to tag, which errors about it carry. 0 is no tag.
func (b *Batch) Tag(tag uint32) {
	if n := len(b.tags); n > 0 && b.tags[n-1].tag == tag {
		return
	}
	if b.isolated {
		b.closeRows()
	}
	b.start()
	b.tags = append(b.tags, tagMark{len(b.w.buf), tag})
}

// Isolate puts rows of different tags into different messages, until the next Reset. Kernels that do not say which row of a
// message they refuse (Linux 5.10) then still say of which tag it is. The batch gets larger by that.
func (b *Batch) Isolate() { b.isolated = true }

// tagIn returns the tag of what stands between two offsets of the buffer, 0 if there are several.
func (b *Batch) tagIn(from, to int) uint32 {
	i := sort.Search(len(b.tags), func(i int) bool { return b.tags[i].at > from })
	if i == 0 || (i < len(b.tags) && b.tags[i].at < to) {
		return 0
	}
	return b.tags[i-1].tag
}

// start makes room for the message that opens every batch, so that offsets are final.
func (b *Batch) start() {
	if len(b.w.buf) == 0 {
		at := b.w.begin(unix.NFNL_MSG_BATCH_BEGIN, 0, 0, unix.NFNL_SUBSYS_NFTABLES)
		b.w.u32(unix.NFNL_BATCH_GENID, 0) // see finish
		b.w.end(at)
	}
}

// message adds a message.
func (b *Batch) message(m sentMessage, typ, flags uint16, body func(w *messageWriter)) {
	b.closeRows()
	b.start()
	m.at = b.w.beginNFT(typ, flags, b.table.Family)
	b.messages = append(b.messages, m)
	body(&b.w)
	b.w.end(m.at)
	b.refuseOverflow(m)
}

// refuseOverflow refuses the batch if the message that was written last is too long for netlink.
func (b *Batch) refuseOverflow(m sentMessage) {
	if b.w.overflow {
		b.refuse(m.op, m.objectText(), "longer than a netlink attribute can be")
		b.w.overflow = false
	}
}

// finish closes the batch and returns what to send. More can be added to the batch nevertheless.
func (b *Batch) finish() []byte {
	b.closeRows()
	binary.BigEndian.PutUint32(b.w.buf[nlmsgHeaderLen+nfgenmsgLen+attrHeaderLen:], b.expect)
	// One acknowledgement, of the last message, is enough: the kernel reports errors of all messages in any case, and
	// an acknowledgement each would overflow the receive buffer.
	if n := len(b.messages); n > 0 {
		last := b.w.buf[b.messages[n-1].at:]
		flags := binary.NativeEndian.Uint16(last[6:])
		binary.NativeEndian.PutUint16(last[6:], flags|unix.NLM_F_ACK)
	}

	whole := b.w // the message that ends the batch is not kept
	whole.end(whole.begin(unix.NFNL_MSG_BATCH_END, 0, 0, unix.NFNL_SUBSYS_NFTABLES))
	b.w.buf = whole.buf[:len(b.w.buf)]
	return whole.buf
}

// beginSeq is the sequence number of the message that opens every batch; the others follow it.
const beginSeq = 1

// lastSeq is the sequence number of the last message that changes something.
func (b *Batch) lastSeq() uint32 { return beginSeq + uint32(len(b.messages)) }
