package nft

import (
	"bytes"
	"cmp"
	"fmt"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Row is an element of a set. Rows are comparable with ==.
type Row struct {
	Set *Set
	// Key has the fields of Set.Key.
	Key Tuple
	// KeyEnd is the last key of a range in a set with Interval. It is zero
	// for a single key. It differs from Key in the last field only, where it
	// is larger.
	KeyEnd Tuple
	// Data has the fields of Set.Data in maps.
	Data Tuple
	// Verdict is the data in verdict maps.
	Verdict Verdict
	// Comment is stored with the row, cut to 127 bytes.
	Comment string
}

// Prefix returns the row with the range of all addresses of the prefix as the
// last field of its key, which it appends.
func (r Row) Prefix(p netip.Prefix) Row {
	p = p.Masked()
	r.KeyEnd = r.Key.Addr(lastAddr(p))
	r.Key = r.Key.Addr(p.Addr())
	return r
}

// Compare orders rows by the name of their set, then by their key.
func (r Row) Compare(o Row) int {
	return cmp.Or(strings.Compare(r.Set.Name, o.Set.Name), r.Key.compare(o.Key), r.KeyEnd.compare(o.KeyEnd))
}

// Matches reports whether r, which was read from the kernel, is the row that
// AddRow(want) adds.
func (r Row) Matches(want Row) bool {
	if want.KeyEnd == want.Key {
		want.KeyEnd = Tuple{}
	}
	want.Comment = storedComment(want.Comment)
	return r == want
}

// last returns the last key of the row.
func (r *Row) last() *Tuple {
	if r.KeyEnd.empty() {
		return &r.Key
	}
	return &r.KeyEnd
}

// invalid returns the reason why the row cannot be added to its set, or "".
func (r *Row) invalid() string {
	if reason := r.invalidKey(); reason != "" {
		return reason
	}
	switch s := r.Set; {
	case s.Verdicts:
		if len(r.Verdict.chain) >= unix.NFT_NAME_MAXLEN {
			return "chain name of the verdict is longer than 255 bytes"
		}
	case s.isMap() && !s.Data.fit(&r.Data):
		return fmt.Sprintf("data of %d bytes does not match %s", r.Data.n, s.Data)
	}
	return ""
}

// invalidKey returns the reason why the key cannot be in the set, or "".
func (r *Row) invalidKey() string {
	key := &r.Set.Key
	switch {
	case !key.fit(&r.Key):
		return fmt.Sprintf("key of %d bytes does not match %s", r.Key.n, key)
	case r.KeyEnd.empty():
		return ""
	case !r.Set.Interval:
		return "key is a range, but the set does not have Interval"
	case !key.fit(&r.KeyEnd):
		return fmt.Sprintf("key end of %d bytes does not match %s", r.KeyEnd.n, key)
	}
	last := int(r.Key.n) - key.types[len(key.types)-1].padded()
	if !bytes.Equal(r.Key.b[:last], r.KeyEnd.b[:last]) {
		return "key end differs in more than the last field"
	}
	if r.Key.compare(r.KeyEnd) > 0 {
		return "key end is less than the key"
	}
	return ""
}

// String returns the row in nft syntax, after the name of its set.
func (r Row) String() string { return r.Set.Name + " " + r.text() }

// keyText is String without data and comment.
func (r *Row) keyText() string { return r.Set.Name + " " + r.Set.Key.rangeText(r.Key, r.KeyEnd) }

// text returns the row in nft syntax.
func (r Row) text() string {
	var b strings.Builder
	b.WriteString(r.Set.Key.rangeText(r.Key, r.KeyEnd))
	if c := storedComment(r.Comment); c != "" {
		b.WriteString(" comment " + quote(c))
	}
	switch {
	case r.Set.Verdicts:
		b.WriteString(" : " + r.Verdict.String())
	case r.Set.isMap():
		b.WriteString(" : " + r.Set.Data.text(r.Data))
	}
	return b.String()
}

// lastAddr returns the last address of a prefix.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := range b {
		host := min(max((i+1)*8-p.Bits(), 0), 8)
		b[i] |= byte(1<<host - 1)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// intervalText returns a range of values in nft syntax. A range of addresses
// is written as a prefix if possible.
func intervalText(t Type, first, last []byte) string {
	if bytes.Equal(first, last) {
		return t.text(first)
	}
	if n, ok := prefixBits(first, last); ok && t.prefixes {
		return t.text(first) + "/" + strconv.Itoa(n)
	}
	return t.text(first) + "-" + t.text(last)
}

// prefixBits returns the length of the prefix that ranges from first to last.
// It returns ok as false if the range is not a prefix.
func prefixBits(first, last []byte) (n int, ok bool) {
	i := 0
	for i < len(first) && first[i] == last[i] {
		i++
	}
	if i == len(first) {
		return i * 8, true
	}
	diff := first[i] ^ last[i]
	n = i*8 + bits.LeadingZeros8(diff)
	if first[i]&diff != 0 || diff&(diff+1) != 0 {
		return 0, false
	}
	for _, b := range first[i+1:] {
		if b != 0 {
			return 0, false
		}
	}
	for _, b := range last[i+1:] {
		if b != 0xff {
			return 0, false
		}
	}
	return n, true
}
