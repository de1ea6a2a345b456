package printable

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestWriter(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"NAME\tÄ → 世界 🙂\r\n", "NAME\tÄ → 世界 🙂\r\n"},
		{"\x1b]0;title\a\x1b[2J\r\x00\x7f", `\u001b]0;title\u0007\u001b[2J\u000d\u0000\u007f`},
		{"\u009b31m\u0085", `\u009b31m\u0085`}, // C1 controls
		{"\u202eevil\u2066\u200b\ufeff\U000e0041", `\u202eevil\u2066\u200b\ufeff\udb40\udc41`},
		{"\xff\xc3(\xed\xa0\x80", `\ufffd\ufffd(\ufffd\ufffd\ufffd`},
	} {
		var b strings.Builder
		reader := iotest.OneByteReader(strings.NewReader(test.text + "."))
		if _, err := io.Copy(NewWriter(&b), reader); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); got != test.want+"." {
			t.Errorf("got %q, want %q", got, test.want+".")
		}
	}
}

// JSON that the Writer changes has the same meaning.
func TestWriterJSON(t *testing.T) {
	const want = "\u202e\x7f\u0085\x1b\U000e0041\n"
	data, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	NewWriter(&b).Write(data)
	var got string
	if err := json.Unmarshal([]byte(b.String()), &got); err != nil || got != want {
		t.Errorf("got %q from %s, error %v, want %q", got, b.String(), err, want)
	}
	if strings.Contains(b.String(), "\u202e") {
		t.Errorf("got %q, want no control character", b.String())
	}
}
