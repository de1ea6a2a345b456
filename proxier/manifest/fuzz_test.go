package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// FuzzParse checks that the parser does not panic, that a problem is one
// line, and that a valid object does not change when it is encoded and parsed
// again.
func FuzzParse(f *testing.F) {
	addSeeds(f)
	decoder := newDecoder()
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, doc := range splitDocuments(data) {
			var result parsed
			result.append(parseDocument(decoder, doc), "web.yaml", doc)
			for _, p := range result.problems {
				if text := p.Error(); strings.ContainsRune(text, '\n') {
					t.Errorf("got problem %q, want one line", text)
				}
			}
			for _, o := range result.objects {
				if o.key.Name == "" || o.key.Kind.namespaced() != (o.key.Namespace != "") {
					t.Errorf("got invalid key %+v", o.key)
				}
				checkRoundTrip(t, decoder, o)
			}
		}
	})
}

// FuzzDocuments checks that a file has the same values for kubectl, which
// reads it with a YAMLOrJSONDecoder. Two differences are intended: duplicate
// keys are errors, and text after a `...` line is not ignored. Three are
// flaws of kubectl: it adds a byte to UTF-16, drops carriage returns, and
// reads a first line `---#` as text.
func FuzzDocuments(f *testing.F) {
	addSeeds(f)
	different := regexp.MustCompile(`(?m)\.\.\.|\r|^---[^ \t\n]`)
	f.Fuzz(func(t *testing.T, data []byte) {
		data = slices.Concat(data, []byte("\n")) // as in kubectl
		want, err := kubectlValues(data)
		if err != nil {
			return
		}
		if different.Match(data) || !utf8.Valid(data) {
			return
		}
		var got []string
		for _, doc := range splitDocuments(data) {
			value, err := doc.toJSON()
			if err != nil && strings.Contains(err.Error(), "already set in map") {
				return
			}
			if err != nil {
				t.Fatalf("document %d: got error %v, want %q as in kubectl", doc.number, err, want)
			}
			got = appendValue(t, got, value)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q as in kubectl", got, want)
		}
	})
}

// kubectlValues returns the values that kubectl finds in a file.
func kubectlValues(data []byte) ([]string, error) {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	var values []string
	for {
		var value runtime.RawExtension
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) {
			return values, nil
		}
		if err != nil {
			return nil, err
		}
		var text bytes.Buffer
		if raw := bytes.TrimSpace(value.Raw); len(raw) == 0 || json.Compact(&text, raw) != nil {
			continue
		}
		values = append(values, text.String())
	}
}

// appendValue appends a value in compact form, unless it is null.
func appendValue(t *testing.T, values []string, value []byte) []string {
	t.Helper()
	var text bytes.Buffer
	if err := json.Compact(&text, value); err != nil {
		t.Fatal(err)
	}
	if text.String() == "null" {
		return values
	}
	return append(values, text.String())
}

// addSeeds adds the files of all scripts, and unusual files.
func addSeeds(f *testing.F) {
	scripts, err := filepath.Glob("testdata/scripts/*.txtar")
	if err != nil || len(scripts) == 0 {
		f.Fatalf("got no scripts, %v", err)
	}
	for _, path := range scripts {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			f.Add(file.Data)
		}
	}
	for _, seed := range []string{"null", "{", "{}{}", "--- x", "\ufeffkind: Service\n", "a: &a [*a]"} {
		f.Add([]byte(seed))
	}
}

func checkRoundTrip(t *testing.T, decoder runtime.Decoder, o object) {
	t.Helper()
	text, err := yaml.Marshal(o.value)
	if err != nil {
		t.Fatal(err)
	}
	again := parseDocument(decoder, document{number: 1, data: text})
	if len(again.objects) != 1 {
		t.Fatalf("%s: got %q, want one object from\n%s", o.key, again.problems, text)
	}
	if again.objects[0].key != o.key || !equality.Semantic.DeepEqual(again.objects[0].value, o.value) {
		t.Errorf("%s: got a different object from\n%s", o.key, text)
	}
}
