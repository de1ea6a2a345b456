package nft

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
	"github.com/nftproxy/nftproxy/nft/notation"
)

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

func (s *Set) isMap() bool { return s.Verdicts || s.Data.Len() > 0 }

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

// Type is the data type of one field of a key or of data.
type Type = notation.Type

// Data types of fields.
var (
	TypeIPv4Addr    = notation.TypeIPv4Addr
	TypeIPv6Addr    = notation.TypeIPv6Addr
	TypeInetProto   = notation.TypeInetProto
	TypeInetService = notation.TypeInetService
	TypeClassID     = notation.TypeClassID
)

// TypeAddr returns the address type of a family.
func TypeAddr(f Family) Type { return ofFamily(f, TypeIPv4Addr, TypeIPv6Addr) }

// Fields describes a key or data: one field, or a concatenation of up to
// five.
type Fields = notation.Fields

// Types declares fields by their types, as in `type ipv4_addr .
// inet_service`. It panics if there are more than five.
func Types(types ...Type) Fields { return notation.Types(types...) }

// maxTuple is the maximum size of a key or of data in the kernel
// (NFT_DATA_VALUE_MAXLEN).
const maxTuple = 64

// Tuple is the value of a key or of data: one field, or the fields of a
// concatenation. The zero Tuple is empty. Methods append fields to it:
//
//	nft.Tuple{}.Addr(vip).Proto(unix.IPPROTO_TCP).Port(80)
//
// Each field takes a multiple of 4 bytes. Appending beyond 64 bytes panics.
// Tuples are comparable with ==.
type Tuple struct {
	n uint8
	b [maxTuple]byte
}

// Addr appends an IP address.
func (t Tuple) Addr(a netip.Addr) Tuple {
	b := a.As16() // IPv4 at the end
	return t.append(b[len(b)-a.BitLen()/8:])
}

// Proto appends an IP protocol number.
func (t Tuple) Proto(p uint8) Tuple { return t.append([]byte{p}) }

// Port appends a transport port.
func (t Tuple) Port(p uint16) Tuple { return t.append([]byte{byte(p >> 8), byte(p)}) }

// Integer appends an integer in host byte order, such as a priority.
func (t Tuple) Integer(v uint32) Tuple {
	var field [4]byte
	binary.NativeEndian.PutUint32(field[:], v)
	return t.append(field[:])
}

// FirstInteger returns the first field, which must be an integer in host byte
// order.
func (t Tuple) FirstInteger() uint32 { return binary.NativeEndian.Uint32(t.b[:]) }

// Raw appends the bytes of fields as they are in registers: each field takes
// a multiple of 4 bytes.
func (t Tuple) Raw(fields []byte) Tuple { return t.append(fields) }

// Bytes returns the bytes of all fields.
func (t Tuple) Bytes() []byte { return slices.Clone(t.b[:t.n]) }

func (t Tuple) append(field []byte) Tuple {
	room := nfnetlink.Align(len(field))
	if int(t.n)+room > maxTuple {
		panic(fmt.Sprintf("nft: tuple exceeds %d bytes", maxTuple))
	}
	copy(t.b[t.n:], field)
	t.n += uint8(room)
	return t
}

// compare orders tuples by their size, then by their bytes.
func (t Tuple) compare(o Tuple) int {
	return cmp.Or(cmp.Compare(t.n, o.n), bytes.Compare(t.b[:t.n], o.b[:o.n]))
}
