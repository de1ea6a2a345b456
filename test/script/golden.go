package script

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/nftproxy/nftproxy/test/must"
)

// Golden compares a text with a file. With the flag -update, it writes the
// file.
func Golden(t testing.TB, file, got string) {
	t.Helper()
	if *update {
		must.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must.NoError(t, err)
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

// Sections compares the sections of a txtar file with the texts for their
// names. With the flag -update, it writes the file. A blank line can precede
// the next section.
func Sections(t testing.TB, file string, text func(name, section string) string) {
	t.Helper()
	golden, err := txtar.ParseFile(file)
	must.NoError(t, err)
	for i, section := range golden.Files {
		want := strings.TrimRight(string(section.Data), "\n")
		got := strings.TrimRight(text(section.Name, string(section.Data)), "\n")
		if got != want && !*update {
			t.Errorf("%s: %s: got\n%s\nwant\n%s", file, section.Name, got, want)
		}
		golden.Files[i].Data = []byte(got + "\n\n")
	}
	if *update {
		must.NoError(t, os.WriteFile(file, txtar.Format(golden), 0o644))
	}
}
