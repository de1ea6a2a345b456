package nft

import (
	"slices"

	"golang.org/x/sys/unix"
)

// AddSet adds a set or map. If it exists with the same type, it keeps its rows.
func (b *Batch) AddSet(s *Set) {
	b.checkName(opAddSet, s.Name)
	if why := s.invalid(); why != "" {
		b.refuse(opAddSet, s.Name, why)
	}
	b.message(sentMessage{op: opAddSet, object: s.Name}, unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE, func(w *messageWriter) { b.setBody(w, s) })
}

// invalid says what is wrong with a set, "" if nothing is.
func (s *Set) invalid() string {
	switch {
	case len(s.Key.types) == 0:
		return "key has no field"
	case len(s.Data.types) > 0 && s.Key.hasTypeof() != s.Data.hasTypeof():
		return "nft declares key and data both by types or both by expressions"
	case s.Interval && slices.ContainsFunc(s.Key.types, func(t Type) bool { return t.order == orderHost }):
		return "the kernel compares ranges byte by byte, and a field is a number in host byte order"
	case len(setTypes(s)) > maxUserdata:
		return "the kernel keeps no more than 256 bytes about types"
	}
	return ""
}

func (b *Batch) setBody(w *messageWriter, s *Set) {
	w.string(unix.NFTA_SET_TABLE, b.table.Name)
	w.string(unix.NFTA_SET_NAME, s.Name)
	w.u32(unix.NFTA_SET_FLAGS, s.flags())
	w.u32(unix.NFTA_SET_KEY_TYPE, s.Key.typeID())
	w.u32(unix.NFTA_SET_KEY_LEN, uint32(s.Key.size))
	switch {
	case s.Verdicts:
		w.u32(unix.NFTA_SET_DATA_TYPE, unix.NFT_DATA_VERDICT)
		w.u32(unix.NFTA_SET_DATA_LEN, 0)
	case s.isMap():
		w.u32(unix.NFTA_SET_DATA_TYPE, s.Data.typeID())
		w.u32(unix.NFTA_SET_DATA_LEN, uint32(s.Data.size))
	}
	w.u32(unix.NFTA_SET_ID, uint32(len(b.messages))) // any number that no other set of the batch has
	w.setDescription(s)
	w.bytes(unix.NFTA_SET_USERDATA, setUserdata(s))
}

// setDescription writes the size of the set and, for ranges in concatenations, the lengths of the fields.
func (w *messageWriter) setDescription(s *Set) {
	if s.Size == 0 && !s.concatRanges() {
		return
	}
	desc := w.nest(unix.NFTA_SET_DESC)
	if s.Size != 0 {
		w.u32(unix.NFTA_SET_DESC_SIZE, s.Size)
	}
	if s.concatRanges() {
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

func (s *Set) flags() uint32 {
	var f uint32
	if s.isMap() {
		f |= unix.NFT_SET_MAP
	}
	if s.Interval {
		f |= unix.NFT_SET_INTERVAL
	}
	if s.concatRanges() {
		f |= nftSetConcat
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
	b.message(sentMessage{op: opDeleteSet, object: name}, unix.NFT_MSG_DELSET, 0, func(w *messageWriter) {
		w.string(unix.NFTA_SET_TABLE, b.table.Name)
		w.string(unix.NFTA_SET_NAME, name)
	})
}

// FlushSet deletes all rows of a set. It is an error if there is no such set.
func (b *Batch) FlushSet(name string) {
	b.message(sentMessage{op: opFlushSet, object: name}, unix.NFT_MSG_DELSETELEM, 0, func(w *messageWriter) {
		w.string(unix.NFTA_SET_ELEM_LIST_TABLE, b.table.Name)
		w.string(unix.NFTA_SET_ELEM_LIST_SET, name)
	})
}
