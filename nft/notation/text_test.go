package notation

import (
	"strings"
	"testing"
	"time"
)

func TestDurationText(t *testing.T) {
	tests := []struct {
		d    time.Duration
		want string
	}{
		{0, "0s"},
		{time.Millisecond, "1ms"},
		{time.Millisecond - 1, "0s"},
		{time.Second, "1s"},
		{90 * time.Second, "1m30s"},
		{3 * time.Hour, "3h"},
		{10800*time.Second + 5*time.Millisecond, "3h5ms"},
		{24 * time.Hour, "1d"},
		{26*time.Hour + 3*time.Minute + 4*time.Second + 5*time.Millisecond, "1d2h3m4s5ms"},
		{366 * 24 * time.Hour, "366d"},
	}
	for _, tt := range tests {
		if got := durationText(tt.d); got != tt.want {
			t.Errorf("%d ns: got %s, want %s", tt.d, got, tt.want)
		}
	}
}

func TestQuote(t *testing.T) {
	if got, want := Quote("a b"), `"a b"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestIsName(t *testing.T) {
	for _, s := range []string{"a", "Z9", "_x", ".x", "balance-2", "affinity/default/sticky/tcp/", "a.b_c"} {
		if !IsName(s) {
			t.Errorf("%q: got no name, want a name", s)
		}
	}
	for _, s := range []string{"", "1a", "-a", "/a", "a b", "a;", "a\"", "ä", "a\x00", "a@b", "a[", "a`", "@", "{"} {
		if IsName(s) {
			t.Errorf("%q: got a name, want none", s)
		}
	}
}

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
