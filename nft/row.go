package nft

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/notation"
)

// Row is an element of a set. Rows are comparable with ==.
type Row struct {
	Set *Set
	// Key has the fields of Set.Key.
	Key Tuple
	// Data has the fields of Set.Data in maps.
	Data Tuple
	// Verdict is the data in verdict maps.
	Verdict Verdict
	// Comment is stored with the row, cut to 127 bytes.
	Comment string
	// Packets is the number of packets that a row of a set with Counts counted.
	// AddRow ignores it.
	Packets uint64
	// Expires is the time after which the kernel deletes the row of a set with
	// Dynamic. 0 means never.
	Expires time.Duration
}

// Compare orders rows by the name of their set, then by their key.
func (r Row) Compare(o Row) int {
	return cmp.Or(strings.Compare(r.Set.Name, o.Set.Name), r.Key.compare(o.Key))
}

// Matches reports whether r, which was read from the kernel, is the row that
// AddRow(want) adds.
func (r Row) Matches(want Row) bool {
	want.Comment, want.Packets, want.Expires = notation.Comment(want.Comment), r.Packets, r.Expires
	return r == want
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
	case s.isMap() && int(r.Data.n) != s.Data.Size():
		return fmt.Sprintf("data of %d bytes does not match %s", r.Data.n, s.Data)
	}
	return ""
}

// invalidKey returns the reason why the key cannot be in the set, or "".
func (r *Row) invalidKey() string {
	if key := &r.Set.Key; int(r.Key.n) != key.Size() {
		return fmt.Sprintf("key of %d bytes does not match %s", r.Key.n, key)
	}
	return ""
}

// String returns the row in nft syntax, after the name of its set.
func (r Row) String() string { return r.Set.Name + " " + r.Text() }

// KeyText is Text without data and comment.
func (r Row) KeyText() string { return r.Set.Key.Text(r.Key.b[:r.Key.n]) }

// Text returns the row in nft syntax.
func (r Row) Text() string {
	var b strings.Builder
	b.WriteString(r.KeyText())
	if c := notation.Comment(r.Comment); c != "" {
		b.WriteString(" comment " + notation.Quote(c))
	}
	switch {
	case r.Set.Verdicts:
		b.WriteString(" : " + r.Verdict.String())
	case r.Set.isMap():
		b.WriteString(" : " + r.Set.Data.Text(r.Data.b[:r.Data.n]))
	}
	return b.String()
}
