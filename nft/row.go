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

// Row is an element of a set or map. Rows are comparable with ==.
type Row struct {
	Set *Set
	// Key has the fields of Set.Key.
	Key Tuple
	// KeyEnd is the last key of a range, inclusive, in sets with Interval; zero for a single key. It differs from
	// Key in the last field only, in which it is larger.
	KeyEnd Tuple
	// Data has the fields of Set.Data, in maps.
	Data Tuple
	// Verdict is the data of verdict maps.
	Verdict Verdict
	// Comment is kept with the element, cut to MaxComment.
	Comment string
}

// Prefix appends an address to the key and makes the row cover all addresses of the prefix. That is the last field of the key.
func (r Row) Prefix(p netip.Prefix) Row {
	p = p.Masked()
	r.KeyEnd = r.Key.Addr(lastAddr(p))
	r.Key = r.Key.Addr(p.Addr())
	return r
}

// last is the last key that the row covers.
func (r *Row) last() *Tuple {
	if r.KeyEnd.IsZero() {
		return &r.Key
	}
	return &r.KeyEnd
}

// invalid says why a row cannot be in its set, "" if it can.
func (r *Row) invalid() string {
	if why := r.invalidKey(); why != "" {
		return why
	}
	switch s := r.Set; {
	case s.Verdicts:
		if len(r.Verdict.chain) >= unix.NFT_NAME_MAXLEN {
			return "name of the chain is longer than 255 bytes"
		}
	case s.isMap() && !s.Data.fit(&r.Data):
		return fmt.Sprintf("data of %d bytes in a map to %s", r.Data.n, s.Data)
	}
	return ""
}

// invalidKey says why a row cannot have its key, "" if it can.
func (r *Row) invalidKey() string {
	key := &r.Set.Key
	switch {
	case !key.fit(&r.Key):
		return fmt.Sprintf("key of %d bytes in a set of %s", r.Key.n, key)
	case r.KeyEnd.IsZero():
		return ""
	case !r.Set.Interval:
		return "range in a set without ranges"
	case !key.fit(&r.KeyEnd):
		return fmt.Sprintf("end of %d bytes in a set of %s", r.KeyEnd.n, key)
	}
	last := int(r.Key.n) - key.types[len(key.types)-1].padded()
	if !bytes.Equal(r.Key.b[:last], r.KeyEnd.b[:last]) {
		return "range in more than the last field"
	}
	if r.Key.Compare(r.KeyEnd) > 0 {
		return "range ends before it begins"
	}
	return ""
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

// Compare orders rows by set name and key.
func (r Row) Compare(o Row) int {
	return cmp.Or(strings.Compare(r.Set.Name, o.Set.Name), r.Key.Compare(o.Key), r.KeyEnd.Compare(o.KeyEnd))
}

// String returns the row in nft syntax, after the name of its set.
func (r Row) String() string { return r.Set.Name + " " + r.text() }

// keyText is String without data and comment.
func (r *Row) keyText() string { return r.Set.Name + " " + r.Set.Key.rangeText(r.Key, r.KeyEnd) }

// text returns the row as it stands in the elements of its set.
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

// intervalText returns a range of values of one type: of addresses as a prefix where it is one.
func intervalText(t Type, first, last []byte) string {
	if bytes.Equal(first, last) {
		return t.text(first)
	}
	if n, ok := prefixBits(first, last); ok && t.prefixes {
		return t.text(first) + "/" + strconv.Itoa(n)
	}
	return t.text(first) + "-" + t.text(last)
}

// prefixBits returns how many leading bits first and last have in common, if all others are 0 in first and 1 in last: the
// length of the prefix that goes from first to last.
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

// Verdict says what becomes of a packet: VerdictAccept, VerdictDrop, VerdictReturn, VerdictGoto(chain) or VerdictJump(chain).
// The zero Verdict is VerdictDrop.
type Verdict struct {
	code  int32
	chain string
}

// Verdicts without a chain.
var (
	VerdictDrop   = Verdict{code: 0}
	VerdictAccept = Verdict{code: 1}
	VerdictReturn = Verdict{code: unix.NFT_RETURN}
)

// VerdictGoto yields `goto chain`.
func VerdictGoto(chain string) Verdict { return Verdict{unix.NFT_GOTO, chain} }

// VerdictJump yields `jump chain`.
func VerdictJump(chain string) Verdict { return Verdict{unix.NFT_JUMP, chain} }

// Chain is the chain that the packet goes on in, or "".
func (v Verdict) Chain() string { return v.chain }

// String returns the verdict in nft syntax.
func (v Verdict) String() string {
	switch v.code {
	case 0:
		return "drop"
	case 1:
		return "accept"
	case unix.NFT_RETURN:
		return "return"
	case unix.NFT_GOTO:
		return "goto " + v.chain
	case unix.NFT_JUMP:
		return "jump " + v.chain
	}
	return "verdict " + strconv.Itoa(int(v.code))
}
