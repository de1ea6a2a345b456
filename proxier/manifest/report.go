package manifest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
)

// place is the place of a definition or a problem in a file.
type place struct {
	file     string // name in the directory
	line     int    // 1-based; 0: the file as a whole
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
	since   time.Time
}

// Error returns "web.yaml:12: document 3: Service default/web:
// spec.ports[0].port: Invalid …", in one line.
func (p problem) Error() string {
	at := p.place.String()
	if p.place.line > 0 {
		at = fmt.Sprintf("%s:%d%s", p.place.file, p.place.line, strings.TrimPrefix(at, p.place.file))
	}
	return quotable(at + ": " + p.text())
}

// quotable returns a text in one line: klog quotes control characters, unless a
// text has several lines.
func quotable(text string) string { return strings.ReplaceAll(text, "\n", " ") }

// text returns the problem without its place.
func (p problem) text() string {
	if p.subject == "" {
		return p.err.Error()
	}
	return fmt.Sprintf("%s: %v", p.subject, p.err)
}

// identity identifies a problem although its place changes.
func (p problem) identity() string { return p.place.file + ": " + p.text() }

// setSince sets the time since when there are problems: now, unless they are
// among those before.
func setSince(problems, before []problem, now time.Time) {
	since := make(map[string]time.Time, len(before))
	for _, p := range before {
		since[p.identity()] = p.since
	}
	for i := range problems {
		p := &problems[i]
		if p.since = since[p.identity()]; p.since.IsZero() {
			p.since = now
		}
	}
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
		logger.Info("Manifest is valid again", "file", quotable(f.name))
	}
	// The places of warnings change when a preceding document changes.
	withoutPlace := func(w warning) [2]string { return [2]string{w.subject, w.text} }
	for _, w := range unseen(f.active.warnings, before.active.warnings, withoutPlace) {
		logger.Info(w.text, "object", w.subject, "file", quotable(w.file), "line", w.line)
	}
}

// logProblems logs the problems that are not among those before.
func logProblems(logger klog.Logger, message string, problems, before []problem) {
	for _, p := range unseen(problems, before, problem.Error) {
		logger.Error(p, message)
	}
}

// logIgnored logs the names that are not among those before.
func logIgnored(logger klog.Logger, names, before []string) {
	const most = 10
	name := func(name string) string { return name }
	if added := unseen(names, before, name); len(added) > 0 {
		logger.Info("Ignored files and folders in manifest directory: manifests are files *.yaml, *.yml and *.json",
			"number", len(added), "names", added[:min(len(added), most)])
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
