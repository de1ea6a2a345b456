package nft

import "golang.org/x/sys/unix"

// A row is one element of the kernel's. In a set whose key is one field with ranges it is two: the first value of the range, and
// the value after its last one, marked as an end. A range up to the largest value has no end.

// maxRowsMessage is the size at which a message of rows is closed: the list of rows is one attribute, whose length
// the kernel counts in 16 bits. A row takes less than 1 KiB.
const maxRowsMessage = 60 << 10

// AddRow adds a row to its set. A row that exists with the same data stays; with other data it is an error.
func (b *Batch) AddRow(r Row) {
	if why := r.invalid(); why != "" {
		b.refuse(opAddRow, r.keyText(), why)
		return
	}
	b.openRows(opAddRow, unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, r.Set)
	elem := b.w.nest(unix.NFTA_LIST_ELEM)
	b.w.rowKey(&r)
	switch {
	case r.Set.Verdicts:
		b.w.verdict(unix.NFTA_SET_ELEM_DATA, &r.Verdict)
	case r.Set.isMap():
		b.w.value(unix.NFTA_SET_ELEM_DATA, &r.Data, r.Set.Data.size)
	}
	b.w.comment(unix.NFTA_SET_ELEM_USERDATA, r.Comment)
	b.w.unnest(elem)
	b.w.rowEnd(&r)
}

// DeleteRow deletes the row with this key from its set; its data does not matter. It is an error if there is none.
func (b *Batch) DeleteRow(r Row) {
	if why := r.invalidKey(); why != "" {
		b.refuse(opDeleteRow, r.keyText(), why)
		return
	}
	b.openRows(opDeleteRow, unix.NFT_MSG_DELSETELEM, 0, r.Set)
	elem := b.w.nest(unix.NFTA_LIST_ELEM)
	b.w.rowKey(&r)
	b.w.unnest(elem)
	b.w.rowEnd(&r)
}

// rowKey writes the key of a row into its element.
func (w *messageWriter) rowKey(r *Row) {
	w.value(unix.NFTA_SET_ELEM_KEY, &r.Key, r.Set.Key.size)
	if r.Set.concatRanges() {
		w.value(nftaElemKeyEnd, r.last(), r.Set.Key.size)
	}
}

// rowEnd writes the second element of a row, if it has one.
func (w *messageWriter) rowEnd(r *Row) {
	if !r.Set.splitRanges() {
		return
	}
	n := r.Set.Key.size
	end, ok := r.last().next(n)
	if !ok {
		return
	}
	elem := w.nest(unix.NFTA_LIST_ELEM)
	w.value(unix.NFTA_SET_ELEM_KEY, &end, n)
	w.u32(unix.NFTA_SET_ELEM_FLAGS, unix.NFT_SET_ELEM_INTERVAL_END)
	w.unnest(elem)
}

// openRows makes the last message one that takes another row of the set.
func (b *Batch) openRows(op operation, typ, flags uint16, s *Set) {
	b.rows++
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
	b.refuseOverflow(b.messages[len(b.messages)-1])
}

// element is what tells an element from the others of a message of rows.
type element struct {
	key, keyEnd Tuple
	intervalEnd bool // second element of a row
}

func parseElement(attributes []byte) element {
	var e element
	attrs(attributes, func(typ uint16, data []byte) {
		switch typ {
		case unix.NFTA_SET_ELEM_KEY:
			e.key = parseTuple(data)
		case nftaElemKeyEnd:
			e.keyEnd = parseTuple(data)
		case unix.NFTA_SET_ELEM_FLAGS:
			e.intervalEnd = be32(data)&unix.NFT_SET_ELEM_INTERVAL_END != 0
		}
	})
	return e
}

// parseTuple returns the value in an nft_data.
func parseTuple(data []byte) Tuple {
	var t Tuple
	attrs(data, func(typ uint16, value []byte) {
		if typ == unix.NFTA_DATA_VALUE && len(value) <= maxTuple {
			t = Tuple{}.append(value)
		}
	})
	return t
}
