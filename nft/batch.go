package nft

import (
	"encoding/binary"
	"fmt"
	"sort"

	"golang.org/x/sys/unix"
)

// Batch collects changes to one table that Conn.Commit carries out in one transaction: all or none,
// in the order in which they were added. A Batch can be used again after Reset, which keeps its memory.
// It is not safe for use by several goroutines at once.
type Batch struct {
	table    *Table
	w        messageWriter
	messages []sentMessage
	tags     []tagMark
	isolated bool
	rows     int
	err      error

	// The message of rows that is open for more rows, if any.
	openSet    *Set
	openOp     operation
	openAt     int
	openListAt int

	expect   uint32
	expected bool
}

// sentMessage remembers what a message of the batch is about, to name it in errors.
type sentMessage struct {
	at     int // offset in the buffer
	op     operation
	object string
	set    *Set // of rows
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
	opAddRow
	opDeleteRow
)

// String returns the operation as nft names it.
func (o operation) String() string {
	return [...]string{
		"add table", "delete table", "add set", "delete set", "flush set", "add chain", "delete chain", "flush chain",
		"add rule", "add element", "delete element",
	}[o]
}

// maxRowsMessage is the size at which a message of rows is closed: the list of rows is one attribute, whose length
// the kernel counts in 16 bits.
const maxRowsMessage = 60 << 10

// NewBatch returns an empty batch of changes to the table.
func NewBatch(table *Table) *Batch { return &Batch{table: table} }

// Reset empties the batch.
func (b *Batch) Reset() {
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
// nobody committed anything since.
func (b *Batch) Expect(gen uint32) { b.expect, b.expected = gen, true }

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
// message they refuse then still say of which tag it is. The batch gets larger by that.
func (b *Batch) Isolate() { b.isolated = true }

// start makes room for the message that opens every batch, so that offsets are final.
func (b *Batch) start() {
	if len(b.w.buf) == 0 {
		at := b.w.begin(unix.NFNL_MSG_BATCH_BEGIN, 0, 0, unix.NFNL_SUBSYS_NFTABLES)
		b.w.u32(nfnlBatchGenID, 0) // see finish
		b.w.end(at)
	}
}

// nfnlBatchGenID is NFNL_BATCH_GENID of the kernel's nfnetlink.h (Linux 4.12).
const nfnlBatchGenID = 1

// message adds a message about an object.
func (b *Batch) message(op operation, typ, flags uint16, object string, body func(w *messageWriter)) {
	b.closeRows()
	b.start()
	at := b.w.beginNFT(typ, flags, b.table.Family)
	b.messages = append(b.messages, sentMessage{at: at, op: op, object: object})
	body(&b.w)
	b.w.end(at)
}

// AddTable adds the table with a comment, without its sets and chains. A table that exists stays as it is.
func (b *Batch) AddTable(comment string) {
	b.message(opAddTable, unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE, "", func(w *messageWriter) {
		w.string(unix.NFTA_TABLE_NAME, b.table.Name)
		w.u32(unix.NFTA_TABLE_FLAGS, 0)
		if u := (userdata{}).comment(udataComment, comment); u != nil {
			w.bytes(nftaTableUserdata, u)
		}
	})
}

// Attributes of the kernel's nf_tables.h that golang.org/x/sys/unix does not have.
const (
	nftaTableHandle   = 4  // Linux 4.17
	nftaSetHandle     = 16 // Linux 4.17
	nftaTableUserdata = 6  // Linux 5.10
	nftaChainUserdata = 12 // Linux 5.10
	nftaElemKeyEnd    = 10 // Linux 5.6
	nftaSetDescConcat = 2  // Linux 5.6
	nftaSetFieldLen   = 1  // Linux 5.6
)

// DeleteTable deletes the table with all that is in it. It is an error if there is none.
func (b *Batch) DeleteTable() {
	b.message(opDeleteTable, unix.NFT_MSG_DELTABLE, 0, "", func(w *messageWriter) {
		w.string(unix.NFTA_TABLE_NAME, b.table.Name)
	})
}

// AddSet adds a set or map. If it exists with the same type, it keeps its rows.
func (b *Batch) AddSet(s *Set) {
	b.message(opAddSet, unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, s.Name, func(w *messageWriter) { b.setBody(w, s) })
}

func (b *Batch) setBody(w *messageWriter, s *Set) {
	w.string(unix.NFTA_SET_TABLE, b.table.Name)
	w.string(unix.NFTA_SET_NAME, s.Name)
	w.u32(unix.NFTA_SET_FLAGS, s.flags())
	w.u32(unix.NFTA_SET_KEY_TYPE, s.Key.typeID())
	w.u32(unix.NFTA_SET_KEY_LEN, uint32(s.Key.length()))
	switch {
	case s.Verdicts:
		w.u32(unix.NFTA_SET_DATA_TYPE, unix.NFT_DATA_VERDICT)
		w.u32(unix.NFTA_SET_DATA_LEN, 0)
	case s.isMap():
		w.u32(unix.NFTA_SET_DATA_TYPE, s.Data.typeID())
		w.u32(unix.NFTA_SET_DATA_LEN, uint32(s.Data.length()))
	}
	w.u32(unix.NFTA_SET_ID, uint32(len(b.messages)))
	b.setDescription(w, s)
	w.bytes(unix.NFTA_SET_USERDATA, setUserdata(s))
}

// setDescription writes the size of the set and, for ranges in concatenations, the lengths of the fields.
func (b *Batch) setDescription(w *messageWriter, s *Set) {
	concat := s.Interval && len(s.Key.types) > 1
	if s.Size == 0 && !concat {
		return
	}
	desc := w.nest(unix.NFTA_SET_DESC)
	if s.Size != 0 {
		w.u32(unix.NFTA_SET_DESC_SIZE, s.Size)
	}
	if concat {
		fields := w.nest(nftaSetDescConcat)
		for _, t := range s.Key.types {
			field := w.nest(unix.NFTA_LIST_ELEM)
			w.u32(nftaSetFieldLen, uint32(t.size))
			w.unnest(field)
		}
		w.unnest(fields)
	}
	w.unnest(desc)
}

// nftSetConcat is NFT_SET_CONCAT of the kernel's nf_tables.h (Linux 5.6): a set whose key has fields with ranges.
const nftSetConcat = 0x80

func (s *Set) flags() uint32 {
	var f uint32
	if s.isMap() {
		f |= unix.NFT_SET_MAP
	}
	if s.Interval {
		f |= unix.NFT_SET_INTERVAL
		if len(s.Key.types) > 1 {
			f |= nftSetConcat
		}
	}
	if s.Dynamic {
		f |= unix.NFT_SET_EVAL
	}
	if s.Timeouts {
		f |= unix.NFT_SET_TIMEOUT
	}
	return f
}

// DeleteSet deletes a set. It is an error if there is none, or if rules use it.
func (b *Batch) DeleteSet(name string) {
	b.message(opDeleteSet, unix.NFT_MSG_DELSET, 0, name, func(w *messageWriter) {
		w.string(unix.NFTA_SET_TABLE, b.table.Name)
		w.string(unix.NFTA_SET_NAME, name)
	})
}

// FlushSet deletes all rows of a set.
func (b *Batch) FlushSet(name string) {
	b.message(opFlushSet, unix.NFT_MSG_DELSETELEM, 0, name, func(w *messageWriter) {
		w.string(unix.NFTA_SET_ELEM_LIST_TABLE, b.table.Name)
		w.string(unix.NFTA_SET_ELEM_LIST_SET, name)
	})
}

// AddChain adds a chain without its rules. A chain that exists stays as it is.
func (b *Batch) AddChain(c *Chain) {
	b.message(opAddChain, unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE, c.Name, func(w *messageWriter) {
		w.string(unix.NFTA_CHAIN_TABLE, b.table.Name)
		w.string(unix.NFTA_CHAIN_NAME, c.Name)
		if c.Hook != nil {
			w.string(unix.NFTA_CHAIN_TYPE, string(c.Hook.Type))
			at := w.nest(unix.NFTA_CHAIN_HOOK)
			w.u32(unix.NFTA_HOOK_HOOKNUM, uint32(c.Hook.Point))
			w.u32(unix.NFTA_HOOK_PRIORITY, uint32(c.Hook.Priority))
			w.unnest(at)
		}
		if u := (userdata{}).comment(udataComment, c.Comment); u != nil {
			w.bytes(nftaChainUserdata, u)
		}
	})
}

// FlushChain deletes all rules of a chain.
func (b *Batch) FlushChain(name string) {
	b.message(opFlushChain, unix.NFT_MSG_DELRULE, 0, name, func(w *messageWriter) {
		w.string(unix.NFTA_RULE_TABLE, b.table.Name)
		w.string(unix.NFTA_RULE_CHAIN, name)
	})
}

// DeleteChain deletes a chain and its rules. It is an error if there is none, or if rules or rows refer to it.
func (b *Batch) DeleteChain(name string) {
	b.message(opDeleteChain, unix.NFT_MSG_DELCHAIN, 0, name, func(w *messageWriter) {
		w.string(unix.NFTA_CHAIN_TABLE, b.table.Name)
		w.string(unix.NFTA_CHAIN_NAME, name)
	})
}

// AddRules appends the rules of a chain to the chain of that name.
func (b *Batch) AddRules(c *Chain) {
	for _, r := range c.Rules {
		b.message(opAddRule, unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND, c.Name, func(w *messageWriter) {
			b.ruleBody(w, c, r)
		})
	}
}

func (b *Batch) ruleBody(w *messageWriter, c *Chain, r Rule) {
	w.string(unix.NFTA_RULE_TABLE, b.table.Name)
	w.string(unix.NFTA_RULE_CHAIN, c.Name)
	at := w.nest(unix.NFTA_RULE_EXPRESSIONS)
	for _, s := range r.Statements {
		for _, e := range s.exprs {
			if err := w.expr(b.table.Family, e); err != nil && b.err == nil {
				b.err = fmt.Errorf("%s: chain %s: rule %q: %w", b.table, c.Name, r, err)
			}
		}
	}
	w.unnest(at)
	if u := (userdata{}).comment(udataComment, r.Comment); u != nil {
		w.bytes(unix.NFTA_RULE_USERDATA, u)
	}
}

// AddRow adds a row to its set. A row that exists with the same data stays; with other data it is an error.
func (b *Batch) AddRow(r Row) {
	b.openRows(opAddRow, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, r.Set)
	b.rows++
	elem := b.w.nest(unix.NFTA_LIST_ELEM)
	b.rowKey(r)
	switch {
	case r.Set.Verdicts:
		b.rowVerdict(r.Verdict)
	case r.Set.isMap():
		b.w.value(unix.NFTA_SET_ELEM_DATA, r.Data, r.Set.Data.length())
	}
	if r.Comment != "" {
		c := cutComment(r.Comment)
		b.w.header(unix.NFTA_SET_ELEM_USERDATA, len(c)+3)
		b.w.buf = append(b.w.buf, udataComment, uint8(len(c)+1))
		b.w.buf = append(b.w.buf, c...)
		b.w.buf = append(b.w.buf, 0)
		b.w.pad()
	}
	b.w.unnest(elem)
}

// DeleteRow deletes the row with this key from its set. It is an error if there is none.
func (b *Batch) DeleteRow(r Row) {
	b.openRows(opDeleteRow, unix.NFT_MSG_DELSETELEM, 0, r.Set)
	b.rows++
	elem := b.w.nest(unix.NFTA_LIST_ELEM)
	b.rowKey(r)
	b.w.unnest(elem)
}

func (b *Batch) rowKey(r Row) {
	n := r.Set.Key.length()
	b.w.value(unix.NFTA_SET_ELEM_KEY, r.Key, n)
	if r.Set.Interval {
		end := r.KeyEnd
		if end.IsZero() {
			end = r.Key
		}
		b.w.value(nftaElemKeyEnd, end, n)
	}
}

func (b *Batch) rowVerdict(v Verdict) {
	data := b.w.nest(unix.NFTA_SET_ELEM_DATA)
	verdict := b.w.nest(unix.NFTA_DATA_VERDICT)
	b.w.u32(unix.NFTA_VERDICT_CODE, uint32(v.code))
	if v.chain != "" {
		b.w.string(unix.NFTA_VERDICT_CHAIN, v.chain)
	}
	b.w.unnest(verdict)
	b.w.unnest(data)
}

// openRows makes the last message one that takes another row of the set.
func (b *Batch) openRows(op operation, typ, flags uint16, s *Set) {
	if b.openSet == s && b.openOp == op && len(b.w.buf)-b.openListAt < maxRowsMessage {
		return
	}
	b.closeRows()
	b.start()
	b.openSet, b.openOp = s, op
	b.openAt = b.w.beginNFT(typ, flags, b.table.Family)
	b.messages = append(b.messages, sentMessage{at: b.openAt, op: op, set: s})
	b.w.string(unix.NFTA_SET_ELEM_LIST_TABLE, b.table.Name)
	b.w.string(unix.NFTA_SET_ELEM_LIST_SET, s.Name)
	b.openListAt = b.w.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
}

func (b *Batch) closeRows() {
	if b.openSet == nil {
		return
	}
	b.w.unnest(b.openListAt)
	b.w.end(b.openAt)
	b.openSet = nil
}

// finish closes the batch and returns what to send.
func (b *Batch) finish() []byte {
	b.closeRows()
	var gen uint32 // 0: any
	if b.expected {
		gen = b.expect
	}
	binary.BigEndian.PutUint32(b.w.buf[nlmsgHeaderLen+nfgenmsgLen+attrHeaderLen:], gen)
	// One acknowledgement, of the last message, is enough: the kernel reports errors of all messages in any case, and
	// an acknowledgement each would overflow the receive buffer.
	last := b.w.buf[b.messages[len(b.messages)-1].at:]
	flags := binary.NativeEndian.Uint16(last[6:])
	binary.NativeEndian.PutUint16(last[6:], flags|unix.NLM_F_ACK)
	b.w.end(b.w.begin(unix.NFNL_MSG_BATCH_END, 0, 0, unix.NFNL_SUBSYS_NFTABLES))
	return b.w.buf
}

// beginSeq is the sequence number of the message that opens every batch; the others follow it.
const beginSeq = 1

// lastSeq is the sequence number of the last message that changes something.
func (b *Batch) lastSeq() uint32 { return beginSeq + uint32(len(b.messages)) }

// messageOf returns the message of a sequence number and its bytes.
func (b *Batch) messageOf(seq uint32) (m sentMessage, body []byte, ok bool) {
	i := int(seq) - beginSeq - 1
	if i < 0 || i >= len(b.messages) {
		return m, nil, false
	}
	m = b.messages[i]
	n := int(binary.NativeEndian.Uint32(b.w.buf[m.at:]))
	return m, b.w.buf[m.at : m.at+n], true
}

// tagIn returns the tag of what stands between two offsets of the buffer, 0 if there are several.
func (b *Batch) tagIn(from, to int) uint32 {
	i := sort.Search(len(b.tags), func(i int) bool { return b.tags[i].at > from })
	if i < len(b.tags) && b.tags[i].at < to {
		return 0
	}
	if i == 0 {
		return 0
	}
	return b.tags[i-1].tag
}
