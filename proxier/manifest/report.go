package manifest

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
)

// place is the place of a definition or a problem in a file.
type place struct {
	file     string // name in the directory
	document int    // 1-based; 0: the file as a whole
	item     int    // 0-based index in the document's list, or noItem
}

// noItem is the item of an object that is not in a list.
const noItem = -1

// String returns "web.yaml: document 3" or "web.yaml: document 3: items[0]".
func (p place) String() string {
	text := p.file
	if p.document > 0 {
		text += fmt.Sprintf(": document %d", p.document)
	}
	if p.item != noItem {
		text += fmt.Sprintf(": items[%d]", p.item)
	}
	return text
}

// problem is a reason why a file or a definition is not active. It does not
// embed its place: klog prefers a String method to Error.
type problem struct {
	place   place
	subject string // the object, or the known part of its identity; may be empty
	err     error
}

// Error returns "web.yaml: document 3: Service default/web:
// spec.ports[0].port: Invalid …".
func (p problem) Error() string {
	if p.subject == "" {
		return fmt.Sprintf("%s: %v", p.place, p.err)
	}
	return fmt.Sprintf("%s: %s: %v", p.place, p.subject, p.err)
}

func (p problem) Unwrap() error { return p.err }

// warning is a property of a valid file that is logged but is not an error.
type warning struct {
	place
	text    string // the log message
	subject string // "Service default/web" or "apps/v1 Deployment web"
}

// logSince logs what is new in the state of the file.
func (f file) logSince(before file, logger klog.Logger) {
	message := "Failed to load manifest"
	if f.valid {
		message = "Failed to load manifest, keeping its last valid version"
	}
	logProblems(logger, message, f.problems, before.problems)
	if len(before.problems) > 0 && len(f.problems) == 0 {
		logger.Info("Manifest is valid again", "file", f.name)
	}
	// The places of warnings change when a preceding document changes.
	withoutPlace := func(w warning) [2]string { return [2]string{w.subject, w.text} }
	for _, w := range unseen(f.active.warnings, before.active.warnings, withoutPlace) {
		logger.Info(w.text, "object", w.subject, "file", w.file, "document", w.document)
	}
}

// logProblems logs the problems that are not among those before.
func logProblems(logger klog.Logger, message string, problems, before []problem) {
	for _, p := range unseen(problems, before, problem.Error) {
		logger.Error(p, message)
	}
}

// unseen returns the values whose key no value before has.
func unseen[T any, K comparable](values, before []T, key func(T) K) []T {
	seen := sets.New[K]()
	for _, v := range before {
		seen.Insert(key(v))
	}
	return slices.DeleteFunc(slices.Clone(values), func(v T) bool { return seen.Has(key(v)) })
}
