package manifest

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
)

// report is the outcome of a read, as far as it was not logged before.
type report struct {
	file       string
	problems   []problem
	keeps      bool // despite the problems, an earlier version is active
	recovered  bool // the previous version had problems, this one has none
	warnings   []warning
	duplicates []problem
}

// reportSince returns the differences from the previous state of the file.
func (f file) reportSince(before file) report {
	return report{
		file:      f.name,
		problems:  newProblems(f.problems, before.problems),
		keeps:     f.valid,
		recovered: len(before.problems) > 0 && len(f.problems) == 0,
		warnings:  newWarnings(f.active.warnings, before.active.warnings),
	}
}

// newProblems returns the problems that are not among those before.
func newProblems(problems, before []problem) []problem {
	return unseen(problems, before, problem.Error)
}

// newWarnings returns the warnings that are not among those before. It
// ignores the places, which change when a preceding document changes.
func newWarnings(warnings, before []warning) []warning {
	return unseen(warnings, before, func(w warning) [2]string { return [2]string{w.subject, w.text} })
}

// unseen returns the values whose key no value before has.
func unseen[T any, K comparable](values, before []T, key func(T) K) []T {
	seen := sets.New[K]()
	for _, v := range before {
		seen.Insert(key(v))
	}
	return slices.DeleteFunc(slices.Clone(values), func(v T) bool { return seen.Has(key(v)) })
}

// log logs the report.
func (r report) log(logger klog.Logger) {
	message := "Failed to load manifest"
	if r.keeps {
		message = "Failed to load manifest, keeping its last valid version"
	}
	for _, p := range r.problems {
		logger.Error(p, message)
	}
	if r.recovered {
		logger.Info("Manifest is valid again", "file", r.file)
	}
	for _, w := range r.warnings {
		logger.Info(w.text, "object", w.subject, "file", w.file, "document", w.document)
	}
	for _, d := range r.duplicates {
		logger.Error(d, "Object is defined more than once")
	}
}
