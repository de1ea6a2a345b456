package nft

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// User data is what nft stores with an object to list it as it was declared.
// It is a list of fields: one byte type, one byte length, and the value
// (libnftnl/udata.h). The layouts are as in nft 1.0.6. All later versions
// read them, whereas user data of later versions makes nft 1.0.6 crash.

// Field types in the user data of tables, rules and elements, and of sets
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

// maxUserdata is the maximum size of user data in the kernel in bytes.
const maxUserdata = unix.NFT_USERDATA_MAXLEN

type userdata []byte

func (u userdata) u32(typ uint8, v uint32) userdata {
	u = append(u, typ, 4)
	return binary.NativeEndian.AppendUint32(u, v)
}

func (u userdata) nested(typ uint8, value []byte) userdata {
	u = append(u, typ, uint8(len(value)))
	return append(u, value...)
}

// setUserdata returns the user data of a set.
func setUserdata(s *Set) []byte {
	u := setTypes(s)
	if c := s.storedComment(); c != "" {
		u = u.nested(udataSetComment, append([]byte(c), 0))
	}
	return u
}

// storedComment returns the comment of the set as the kernel stores it: cut
// to the space that the types leave.
func (s *Set) storedComment() string {
	const header, final = 2, 1
	room := maxUserdata - len(setTypes(s)) - header - final
	return cutComment(s.Comment, max(0, min(room, maxComment)))
}

// setTypes returns the user data of a set without the comment.
func setTypes(s *Set) userdata {
	u := userdata{}.u32(udataSetKeyByteOrder, uint32(s.Key.order()))
	if s.isMap() {
		u = u.u32(udataSetDataByteOrder, uint32(s.Data.order()))
	}
	u = typeofFields(u, udataSetKeyTypeof, s.Key)
	if s.Verdicts && s.Key.hasTypeof() {
		verdict := userdata{}.u32(udataTypeofExpr, exprVerdict).nested(udataTypeofData, nil)
		u = u.nested(udataSetDataTypeof, verdict)
	} else {
		u = typeofFields(u, udataSetDataTypeof, s.Data)
	}
	if s.isMap() {
		u = u.u32(udataSetDataInterval, 0)
	}
	return u
}

// typeofFields appends the expressions of a key or data. For a single field
// that was declared by its type, nft stores nothing. For a concatenation of
// types it stores an empty list of expressions.
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

// maxComment is the maximum size of a comment in bytes. nft accepts 128 with
// the final NUL.
const maxComment = 127

// storedComment returns a comment as the kernel stores it: cut to maxComment,
// without characters that nft cannot read or print.
func storedComment(s string) string { return cutComment(s, maxComment) }

// commentReplacer replaces the characters that nft cannot quote.
var commentReplacer = strings.NewReplacer(`"`, `'`, "\x00", " ")

// cutComment cuts a comment to at most n bytes, at the boundary of a
// character.
func cutComment(s string, n int) string {
	if len(s) > n {
		for i := range utf8.UTFMax {
			if n-i >= 0 && utf8.RuneStart(s[n-i]) {
				n -= i
				break
			}
		}
		s = s[:n]
	}
	if strings.IndexByte(s, '"') < 0 && strings.IndexByte(s, 0) < 0 {
		return s // without allocation
	}
	return commentReplacer.Replace(s)
}

// parseComment returns the comment in the user data of an element, or "".
func parseComment(data []byte) string {
	for len(data) >= 2 && len(data) >= 2+int(data[1]) {
		if data[0] == udataComment {
			return cString(data[2 : 2+int(data[1])])
		}
		data = data[2+int(data[1]):]
	}
	return ""
}
