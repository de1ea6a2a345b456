package manifest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/script"
)

// TestSplitDocuments splits the files in testdata/documents.txt.
func TestSplitDocuments(t *testing.T) {
	const file = "testdata/documents.txt"
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for line := range strings.Lines(string(want)) {
		if !strings.HasPrefix(line, "\t") {
			got.WriteString(line)
		}
		data, err := strconv.Unquote(strings.TrimSuffix(line, "\n"))
		if err != nil {
			continue // a comment or an empty line
		}
		for _, doc := range splitDocuments([]byte(data)) {
			got.WriteString("\t" + doc.describe() + "\n")
		}
	}
	script.Golden(t, file, got.String())
}

// describe returns the number, the line and the data of a document, or the
// number and the error.
func (d document) describe() string {
	if d.err != nil {
		return fmt.Sprintf("%d: %v", d.number, d.err)
	}
	text := fmt.Sprintf("%d @%d ", d.number, d.line)
	if d.isJSON {
		text += "JSON "
	}
	text += fmt.Sprintf("%q", d.data)
	if d.jsonErr != nil {
		text += fmt.Sprintf(" or %v", d.jsonErr)
	}
	return text
}
