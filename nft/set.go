package nft

import "golang.org/x/sys/unix"

// Set describes a set. With Data or Verdicts it is a map.
type Set struct {
	Name string
	// Key describes the fields of a key.
	Key Fields
	// Data describes the fields of the data of a map. It is zero for sets and
	// verdict maps.
	Data Fields
	// Verdicts makes the set a verdict map.
	Verdicts bool
	// Dynamic allows rules to add rows (Update), which can expire.
	Dynamic bool
	// Counts makes each row count the packets for which a rule finds it (Linux
	// 5.7).
	Counts bool
	// Size is the maximum number of rows. 0 means no limit, or 65535 if
	// Dynamic is set.
	Size uint32
	// Comment is stored with the set, cut to 127 bytes.
	Comment string

	ranges bool // see FindSet
}

func (s *Set) isMap() bool { return s.Verdicts || len(s.Data.types) > 0 }

func (s *Set) flags() uint32 {
	var f uint32
	if s.isMap() {
		f |= unix.NFT_SET_MAP
	}
	if s.Dynamic {
		f |= unix.NFT_SET_EVAL | unix.NFT_SET_TIMEOUT
	}
	return f
}

// AddSet adds a set or map. If the set exists with the same type, it keeps
// its rows. The commit fails if the set exists with another type, but only on
// Linux 6.2 or later; earlier kernels keep the set and report no error.
func (b *Batch) AddSet(s *Set) {
	if len(s.Key.types) == 0 {
		b.refuse("add set", s.Name, "key has no fields")
	}
	b.add(kindSet, sentMessage{object: s.Name}, func(w *messageWriter) { b.setBody(w, s) })
}

func (b *Batch) setBody(w *messageWriter, s *Set) {
	w.Uint32(unix.NFTA_SET_FLAGS, s.flags())
	w.Uint32(unix.NFTA_SET_KEY_TYPE, s.Key.typeID())
	w.Uint32(unix.NFTA_SET_KEY_LEN, uint32(s.Key.size))
	switch {
	case s.Verdicts:
		w.Uint32(unix.NFTA_SET_DATA_TYPE, unix.NFT_DATA_VERDICT)
		w.Uint32(unix.NFTA_SET_DATA_LEN, 0)
	case s.isMap():
		w.Uint32(unix.NFTA_SET_DATA_TYPE, s.Data.typeID())
		w.Uint32(unix.NFTA_SET_DATA_LEN, uint32(s.Data.size))
	}
	w.Uint32(unix.NFTA_SET_ID, uint32(len(b.messages))) // unique within the batch
	if s.Size != 0 {
		desc := w.Nest(unix.NFTA_SET_DESC)
		w.Uint32(unix.NFTA_SET_DESC_SIZE, s.Size)
		w.Unnest(desc)
	}
	if s.Counts {
		e := w.Nest(nftaSetExpr)
		w.CString(unix.NFTA_EXPR_NAME, counterExpr)
		w.Unnest(w.Nest(unix.NFTA_EXPR_DATA))
		w.Unnest(e)
	}
	w.Bytes(unix.NFTA_SET_USERDATA, setUserdata(s))
}

// DeleteSet deletes a set. The commit fails if the set does not exist, or if
// rules refer to it.
func (b *Batch) DeleteSet(name string) { b.delete("delete set", kindSet, name) }

// FlushSet deletes all rows of a set. The commit fails if the set does not
// exist.
func (b *Batch) FlushSet(name string) { b.delete("flush set", kindRow, name) }
