package manifest

import (
	"cmp"
	"fmt"
	"maps"
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

// Status describes the directory as of the last read.
type Status struct {
	Dir string `json:"dir"`
	// Files is the number of manifests, Objects of the active objects.
	Files   int `json:"files"`
	Objects int `json:"objects"`
	// ProblemCount is the number of problems. Problems are the first ones by
	// file, at most maxReported.
	ProblemCount int       `json:"problemCount"`
	Problems     []Problem `json:"problems,omitempty"`
}

// Problem is the reason why a file, an object or the directory is not active as
// it is now.
type Problem struct {
	// File is the name of the file, "" for the directory.
	File string `json:"file,omitempty"`
	// Document counts the documents of the file from 1, Line its lines. Both
	// are 0 if the problem is about the whole file.
	Document int `json:"document,omitempty"`
	Line     int `json:"line,omitempty"`
	// Text has the file, the line, the object and the field.
	Text string `json:"text"`
	// Kept reports whether the last valid version is active.
	Kept bool `json:"kept,omitempty"`
	// Since is when the problem was first seen.
	Since time.Time `json:"since,omitzero"`
}

// maxReported limits the problems of a Status.
const maxReported = 100

// Status returns the state of the directory. Any goroutine can call it.
func (s *Source) Status() *Status { return s.status.Load() }

// publish makes the state of the last read the result of Status.
func (s *Source) publish() {
	all := s.state.problems()
	if s.err != nil {
		text := "the folder cannot be read: " + s.err.Error()
		all = slices.Insert(all, 0, Problem{Text: text, Kept: true, Since: s.failed})
	}
	status := s.state.status(s.config.Dir, all[:min(len(all), maxReported)])
	status.ProblemCount = len(all)
	s.status.Store(&status)
}

// status returns the state of a directory with problems.
func (s *state) status(dir string, problems []Problem) Status {
	return Status{
		Dir: dir, Files: len(s.files), Objects: len(s.active), ProblemCount: len(problems), Problems: problems,
	}
}

// problems returns the problems of all files and objects, by file and line.
func (s *state) problems() (all []Problem) {
	for _, name := range slices.Sorted(maps.Keys(s.files)) {
		f := s.files[name]
		for _, p := range f.problems {
			all = append(all, p.report(f.valid))
		}
	}
	for _, p := range s.duplicates {
		all = append(all, p.report(false))
	}
	slices.SortStableFunc(all, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return all
}

// maxText limits the text of a Problem, which has values of the file.
const maxText = 1000

func (p problem) report(kept bool) Problem {
	text := p.Error()
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return Problem{
		File: p.place.file, Document: p.place.document, Line: p.place.line, Text: text, Kept: kept, Since: p.since,
	}
}
