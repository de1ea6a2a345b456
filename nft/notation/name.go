package notation

import "strconv"

// Quote puts a string into quotation marks, for which nft has no escape (see
// Comment).
func Quote(s string) string { return `"` + s + `"` }

// IsName reports whether the scanner of nft reads s as a name. It does not
// check for keywords.
func IsName(s string) bool {
	for i, c := range []byte(s) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		switch {
		case letter, c == '_', c == '.':
		case i > 0 && ('0' <= c && c <= '9' || c == '/' || c == '-'):
		default:
			return false
		}
	}
	return s != ""
}

// NameOf returns the name of a number, or the number if it has none.
func NameOf(n uint32, names ...string) string {
	if int(n) < len(names) && names[n] != "" {
		return names[n]
	}
	return strconv.FormatUint(uint64(n), 10)
}
