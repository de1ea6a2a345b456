package notation

import (
	"testing"
)

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
