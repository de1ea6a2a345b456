package manifest

import (
	"testing"
)

func TestNewRequiresAllFields(t *testing.T) {
	for _, config := range []Config{{}, {Dir: t.TempDir()}, {Handler: newRecorder(t)}} {
		if _, err := New(config); err == nil {
			t.Errorf("New(%+v): got no error", config)
		}
	}
}

// TestUnchangedDocumentsAreReused checks that an unchanged document is not
// decoded again, nor is an unchanged file, even if it is invalid.
func TestUnchangedDocumentsAreReused(t *testing.T) {
	decoder := newDecoder()
	parse := func(f file, text string) file { return f.parse(decoder, []byte(text)) }
	first := parse(file{name: "web.yaml"}, documents(serviceAt("a", "10.0.0.1"), serviceAt("b", "10.0.0.2")))
	second := parse(first, documents("null\n", serviceAt("c", "10.0.0.3"), serviceAt("a", "10.0.0.1")))
	if first.active.objects[0].value != second.active.objects[1].value {
		t.Error("got a new object of an unchanged document, want the old one")
	}
	invalid := parse(second, "kind: [")
	if again := parse(invalid, "kind: ["); &again.problems[0] != &invalid.problems[0] {
		t.Error("an unchanged file was parsed again")
	}
}
