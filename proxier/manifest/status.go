package manifest

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

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
