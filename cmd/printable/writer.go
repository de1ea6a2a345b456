// Package printable keeps control characters away from terminals. Answers
// contain names, comments and errors of others, which can hold any bytes.
package printable

import (
	"bytes"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Writer writes text in which each character that is neither printable nor a
// tab or the end of a line is escaped as in JSON, so that JSON stays valid. A
// byte that is not UTF-8 becomes \ufffd. An incomplete character waits for the
// next call of Write.
type Writer struct {
	w    io.Writer
	rest []byte
}

// NewWriter returns a Writer that writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write implements io.Writer.
func (w *Writer) Write(p []byte) (int, error) {
	text := append(w.rest, p...)
	out := make([]byte, 0, len(text))
	for len(text) > 0 && utf8.FullRune(text) && (len(text) > 1 || text[0] != '\r') {
		r, size := utf8.DecodeRune(text)
		switch end := r == '\r' && text[1] == '\n'; {
		case r == '\n', r == '\t', end, r != utf8.RuneError && unicode.IsPrint(r):
			out = append(out, text[:size]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text = text[size:]
	}
	w.rest = bytes.Clone(text)
	if _, err := w.w.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}
