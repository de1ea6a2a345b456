package nft

import (
	"strings"
	"unicode/utf8"
)

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
