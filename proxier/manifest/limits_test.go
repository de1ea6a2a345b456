package manifest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLimits parses small files that would take gigabytes of memory. The last
// valid version stays active.
func TestLimits(t *testing.T) {
	long := "a: &a " + strings.Repeat("x", 100_000) + "\n"
	laughs := "a: &a [" + strings.Repeat("x,", 10) + "]\n"
	for anchor := 'a'; anchor < 'f'; anchor++ {
		laughs += fmt.Sprintf("%c: &%[1]c [%s]\n", anchor+1, strings.Repeat(fmt.Sprintf("*%c,", anchor), 10))
	}
	const list = `{"apiVersion": "v1", "kind": "List", "items": [`
	for _, test := range []struct {
		name, data string
		want       error
	}{
		{"aliases of a long text", long + "b: [" + strings.Repeat("*a,", 200) + "]\n", errAliases},
		{"aliases of aliases", laughs, errAliases},
		{"values", "[" + strings.Repeat("{a},", maxValues/2) + "]", errValues},
		{"values in JSON", list + strings.Repeat("{},", maxValues/2) + "{}]}", errValues},
		{"documents", strings.Repeat("---\n", maxDocuments+2), errDocuments},
		{"documents in JSON", strings.Repeat("{}\n", maxDocuments+2), errProblems},
		{"problems of documents", strings.Repeat("---\n1\n", 2*maxProblems), errProblems},
		{"problems of items", list + strings.Repeat("{},", 2*maxProblems) + "{}]}", errProblems},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := file{name: "web.yaml"}.parse(newDecoder(), []byte(serviceAt("a", "10.0.0.1")))
			f = f.parse(newDecoder(), []byte(test.data))
			if len(f.active.objects) != 1 || f.active.objects[0].key.Name != "a" {
				t.Errorf("got objects %v, want the Service of the last valid version", f.active.objects)
			}
			last := f.problems[len(f.problems)-1]
			if !errors.Is(last, test.want) || last.place.file != "web.yaml" {
				t.Errorf("got problem %.200q, want %q of web.yaml", last.Error(), test.want)
			}
			if len(f.problems) > maxProblems+1 {
				t.Errorf("got %d problems, want at most %d", len(f.problems), maxProblems+1)
			}
		})
	}
}

// TestSizeLimits reads sparse files. One grows after the directory was listed.
func TestSizeLimits(t *testing.T) {
	dir := t.TempDir()
	sparse := func(name string, bytes int64) {
		write(t, filepath.Join(dir, name), "")
		if err := os.Truncate(filepath.Join(dir, name), bytes); err != nil {
			t.Fatal(err)
		}
	}
	sparse("a.yaml", maxFileSize+1)
	sparse("b.yaml", 1)
	for i := range maxTotalSize / maxFileSize {
		sparse(fmt.Sprintf("c%d.yaml", i), maxFileSize)
	}
	sparse("d.yaml", 1)
	sparse("e.yaml", maxFileSize)
	l, err := list(dir)
	if err != nil {
		t.Fatal(err)
	}
	sparse("d.yaml", maxFileSize+1)
	contents := l.read(dir)
	for name, want := range map[string]error{
		"a.yaml": errFileSize, "b.yaml": nil, "c0.yaml": nil, "c6.yaml": nil, "c7.yaml": errTotalSize,
		"d.yaml": errFileSize, "e.yaml": errTotalSize,
	} {
		if got := contents[name]; !errors.Is(got.err, want) || want != nil && got.data != nil {
			t.Errorf("%s: got %d bytes and error %v, want %v", name, len(got.data), got.err, want)
		}
	}
}
