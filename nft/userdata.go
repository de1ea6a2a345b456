package nft

import (
	"encoding/binary"
	"unicode/utf8"
)

// User data is what nft keeps with objects in the kernel to print them as they were written: a
// list of fields of one byte type, one byte length and the value (libnftnl/udata.h). The
// layouts are those of nft 1.0.6, which all later versions read.

// Types of the fields in the user data of tables, chains, rules and elements, and of sets
// (NFTNL_UDATA_*).
const (
	udataComment = 0

	udataSetKeyByteOrder  = 0
	udataSetDataByteOrder = 1
	udataSetKeyTypeof     = 3
	udataSetDataTypeof    = 4
	udataSetDataInterval  = 6
	udataSetComment       = 7

	udataTypeofExpr = 0
	udataTypeofData = 1
)

// MaxComment is the length to which comments are cut, in bytes: nft accepts 128 with the final NUL.
const MaxComment = 127

type userdata []byte

func (u userdata) u32(typ uint8, v uint32) userdata {
	u = append(u, typ, 4)
	return binary.NativeEndian.AppendUint32(u, v)
}

func (u userdata) nested(typ uint8, value []byte) userdata {
	u = append(u, typ, uint8(len(value)))
	return append(u, value...)
}

// comment appends a NUL-terminated string, cut to MaxComment at a character boundary. An empty one is left out.
func (u userdata) comment(typ uint8, s string) userdata {
	s = cutComment(s)
	if s == "" {
		return u
	}
	u = append(u, typ, uint8(len(s)+1))
	u = append(u, s...)
	return append(u, 0)
}

func cutComment(s string) string {
	if len(s) <= MaxComment {
		return s
	}
	n := MaxComment
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// setUserdata returns the user data of a set as nft writes it.
func setUserdata(s *Set) []byte {
	u := userdata{}.u32(udataSetKeyByteOrder, uint32(s.Key.order()))
	if s.isMap() {
		order := orderInvalid
		if len(s.Data.types) > 0 {
			order = s.Data.order()
		}
		u = u.u32(udataSetDataByteOrder, uint32(order))
	}
	u = typeofFields(u, udataSetKeyTypeof, s.Key)
	if s.Verdicts && s.Key.hasTypeof() {
		u = u.nested(udataSetDataTypeof, userdata{}.u32(udataTypeofExpr, exprVerdict).nested(udataTypeofData, nil))
	} else {
		u = typeofFields(u, udataSetDataTypeof, s.Data)
	}
	if s.isMap() {
		u = u.u32(udataSetDataInterval, 0)
	}
	return u.comment(udataSetComment, s.Comment)
}

// typeofFields appends which expressions make up a key or data. Of a single field that was declared by its
// type nft keeps nothing, of a concatenation of types only that it is one.
func typeofFields(u userdata, typ uint8, f Fields) userdata {
	switch {
	case len(f.types) == 1 && f.hasTypeof():
		return u.nested(typ, f.exprs[0].typeof)
	case len(f.types) > 1:
		var parts userdata
		for i, e := range f.exprs {
			parts = parts.nested(uint8(i), e.typeof)
		}
		return u.nested(typ, userdata{}.u32(udataTypeofExpr, exprConcat).nested(udataTypeofData, parts))
	}
	return u
}
