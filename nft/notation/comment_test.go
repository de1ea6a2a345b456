package notation

import (
	"strings"
	"testing"
)

func TestComment(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	tests := []struct{ name, comment, want string }{
		{"empty", "", ""},
		{"short", "default/web:http", "default/web:http"},
		{"not ASCII", "grün", "grün"},
		{"quotation marks", `say "hello"`, "say 'hello'"},
		{"NUL", "a\x00b", "a b"},
		{"longest", x(127), x(127)},
		{"one byte too long", x(128), x(127)},
		{"last character fits", x(125) + "üü", x(125) + "ü"},
		{"two bytes, cut after one", x(126) + "ü", x(126)},
		{"three bytes, cut after one", x(126) + "€", x(126)},
		{"three bytes, cut after two", x(125) + "€", x(125)},
		{"four bytes, cut after three", x(124) + "😀", x(124)},
		{"four bytes fit", x(123) + "😀" + "x", x(123) + "😀"},
		{"not UTF-8", strings.Repeat("\x80", 130), strings.Repeat("\x80", 127)},
	}
	for _, tt := range tests {
		if got := Comment(tt.comment); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
