package flows

import (
	"bytes"
	"flag"
	"io"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares what print writes with a file.
func golden(t *testing.T, file string, print func(io.Writer, bool)) {
	t.Helper()
	var got bytes.Buffer
	print(&got, false)
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, &got, want)
	}
}
