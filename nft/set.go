package nft

import (
	"fmt"
	"slices"
	"strings"
)

// Set describes a set, or a map if it has Data or Verdicts.
type Set struct {
	Name string
	// Key says of which fields a key is made.
	Key Fields
	// Data says of which fields a map's data is made, by Types if Key is by Types, by Typeof if Key is by Typeof; zero for sets and for
	// verdict maps.
	Data Fields
	// Verdicts makes it a verdict map.
	Verdicts bool
	// Interval allows the last field of a key to be a range of values (Row.KeyEnd). Ranges must not overlap.
	Interval bool
	// Dynamic allows rules to add elements (Update).
	Dynamic bool
	// Timeouts allows elements that end by themselves.
	Timeouts bool
	// Size is the most elements that the set can hold; 0 for no limit, but of sets with Dynamic for 65535.
	Size uint32
	// Comment is kept with the set, cut to MaxComment.
	Comment string
}

func (s *Set) isMap() bool { return s.Verdicts || len(s.Data.types) > 0 }

// splitRanges says whether the kernel keeps ranges as their first values and ends (see Batch.AddRow).
func (s *Set) splitRanges() bool { return s.Interval && len(s.Key.types) == 1 }

// concatRanges says whether the kernel keeps ranges as pairs of keys.
func (s *Set) concatRanges() bool { return s.Interval && len(s.Key.types) > 1 }

// keyword is what nft calls it.
func (s *Set) keyword() string {
	if s.isMap() {
		return "map"
	}
	return "set"
}

// maxFields is the most fields that nft allows in a concatenation: its number for the type has 6 bits for each of five.
const maxFields = 5

// Fields are the fields of a key or of a map's data: one, or a concatenation of up to five.
type Fields struct {
	types []Type
	exprs []Expr // as many as types, or none
	size  int    // of a value in bytes, as the kernel counts it: of a concatenation with padding
}

// Types declares fields by their types: `type ipv4_addr . inet_service`. More than five panic.
func Types(types ...Type) Fields { return newFields(types, nil) }

// Typeof declares fields by the expressions whose values they hold: `typeof ip daddr . th dport`. Fields that hold
// a number of numgen can be declared in no other way. More than five panic.
func Typeof(exprs ...Expr) Fields {
	var types []Type
	for _, e := range exprs {
		types = append(types, e.typ)
	}
	return newFields(types, exprs)
}

func newFields(types []Type, exprs []Expr) Fields {
	if len(types) > maxFields {
		panic(fmt.Sprintf("nft: %d fields, of at most %d", len(types), maxFields))
	}
	f := Fields{types: slices.Clone(types), exprs: slices.Clone(exprs)} // callers may go on appending to theirs
	for _, t := range types {
		f.size += t.padded()
	}
	if len(types) == 1 {
		f.size = types[0].size
	}
	return f
}

func (f Fields) hasTypeof() bool { return len(f.exprs) > 0 }

// typeID is nft's number for the type: of a concatenation, the numbers of its fields at 6 bits each.
func (f Fields) typeID() uint32 {
	var id uint32
	for _, t := range f.types {
		id = id<<6 | t.id
	}
	return id
}

// fit says whether a tuple has as many bytes as these fields take.
func (f *Fields) fit(t *Tuple) bool { return int(t.n) == align4(f.size) }

func (f Fields) order() byteOrder {
	if len(f.types) == 1 {
		return f.types[0].order
	}
	return orderInvalid
}

// String returns the fields as nft writes them after `type` or `typeof`.
func (f Fields) String() string {
	var parts []string
	for i, t := range f.types {
		if f.hasTypeof() {
			parts = append(parts, f.exprs[i].text)
		} else {
			parts = append(parts, t.name)
		}
	}
	return strings.Join(parts, " . ")
}

// text returns a value of these fields in nft syntax.
func (f Fields) text(t Tuple) string { return f.rangeText(t, Tuple{}) }

// rangeText is text for a value whose last field goes up to that of end, if there is an end.
func (f Fields) rangeText(t, end Tuple) string {
	if !f.fit(&t) {
		return fmt.Sprintf("0x%x", t.b[:t.n])
	}
	parts := make([]string, 0, len(f.types))
	at := 0
	for i, typ := range f.types {
		if i == len(f.types)-1 && !end.IsZero() && f.fit(&end) {
			parts = append(parts, intervalText(typ, t.b[at:at+typ.size], end.b[at:at+typ.size]))
		} else {
			parts = append(parts, typ.text(t.b[at:at+typ.size]))
		}
		at += typ.padded()
	}
	return strings.Join(parts, " . ")
}
