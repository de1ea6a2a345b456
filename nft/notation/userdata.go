package notation

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

	exprConcat = 13 // of enum expr_types of nft
)

type userdata []byte

func (u userdata) u32(typ uint8, v uint32) userdata {
	u = append(u, typ, 4)
	return binary.NativeEndian.AppendUint32(u, v)
}

func (u userdata) nested(typ uint8, value []byte) userdata {
	u = append(u, typ, uint8(len(value)))
	return append(u, value...)
}

// SetUserdata returns the user data of a set or map. A verdict map has no
// fields of data.
func SetUserdata(key, data Fields, isMap bool, comment string) []byte {
	u := userdata{}.u32(udataSetKeyByteOrder, uint32(key.order()))
	if isMap {
		u = u.u32(udataSetDataByteOrder, uint32(data.order()))
	}
	u = u.concat(udataSetKeyTypeof, key).concat(udataSetDataTypeof, data)
	if isMap {
		u = u.u32(udataSetDataInterval, 0)
	}
	if c := Comment(comment); c != "" {
		u = u.nested(udataSetComment, append([]byte(c), 0))
	}
	return u
}

// concat appends the empty list of expressions that nft stores for a
// concatenation of types. For a single type it stores nothing.
func (u userdata) concat(typ uint8, f Fields) userdata {
	if len(f.types) < 2 {
		return u
	}
	return u.nested(typ, userdata{}.u32(udataTypeofExpr, exprConcat).nested(udataTypeofData, nil))
}

// maxComment is the maximum size of a comment in bytes. nft accepts 128 with
// the final NUL.
const maxComment = 127

// commentReplacer replaces the characters that nft cannot quote.
var commentReplacer = strings.NewReplacer(`"`, `'`, "\x00", " ")

// Comment returns a comment as the kernel stores it: cut to maxComment at
// the boundary of a character, without characters that nft cannot read or
// print.
func Comment(s string) string {
	if len(s) > maxComment {
		n := maxComment
		for i := range utf8.UTFMax {
			if utf8.RuneStart(s[n-i]) {
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

// AppendComment appends the user data of a table, rule or element that consists
// of a comment (see Comment): its size is CommentSize.
func AppendComment(b []byte, comment string) []byte {
	b = append(b, udataComment, uint8(len(comment)+1))
	return append(append(b, comment...), 0)
}

// CommentSize returns the number of bytes that AppendComment appends.
func CommentSize(comment string) int { return len(comment) + 3 }

// ParseComment returns the comment in the user data of a table, rule or
// element, or "".
func ParseComment(data []byte) string {
	for len(data) >= 2 && len(data) >= 2+int(data[1]) {
		if data[0] == udataComment {
			return unix.ByteSliceToString(data[2 : 2+int(data[1])])
		}
		data = data[2+int(data[1]):]
	}
	return ""
}
