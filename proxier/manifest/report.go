package manifest

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
)

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
