package result

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPublished checks that the published table shows the published figures. An
// older result need not have the rows that were added later.
func TestPublished(t *testing.T) {
	const folder = "../results"
	r, err := Read(filepath.Join(folder, FileName))
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(folder, "dataplane.txt"))
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	if err := r.Table(&got); err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("the table differs from dataplane.txt; bin/dataplane --from FILE --output FOLDER writes it:\n%s", &got)
	}
}
