package nft

import (
	"strings"
	"unicode/utf8"
)

// MaxComment is the length to which comments are cut, in bytes: nft accepts 128 with the final NUL.
const MaxComment = 127

// storedComment returns a comment as it is kept: cut to MaxComment, and with what nft can neither read nor print replaced.
func storedComment(s string) string { return cutComment(s, MaxComment) }

// uncommentable has what cannot stand between nft's quotation marks.
var uncommentable = strings.NewReplacer(`"`, `'`, "\x00", " ")

// cutComment cuts a comment to n bytes or, so that no character is cut in two, up to 3 fewer.
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
		return s
	}
	return uncommentable.Replace(s)
}
