package nft

import "golang.org/x/sys/unix"

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
