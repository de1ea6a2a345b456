package nft

import "golang.org/x/sys/unix"

// checkName refuses names that nft cannot read. The kernel accepts any name,
// but nft could not load its own listing.
func (b *Batch) checkName(op operation, name string) {
	switch {
	case !isName(name):
		b.refuse(op, name, "name must be a letter, _ or ., followed by letters, digits, _, ., / or -")
	case len(name) >= unix.NFT_NAME_MAXLEN:
		b.refuse(op, name, "name is longer than 255 bytes")
	}
}

// isName reports whether the scanner of nft reads s as a name. It does not
// check for keywords.
func isName(s string) bool {
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
