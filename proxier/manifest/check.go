package manifest

import (
	"errors"
	"time"

	"k8s.io/klog/v2"
)

// Report is the result of reading a directory once.
type Report struct {
	// Status has all problems.
	Status
	// Warnings are about objects that are served in part, or not at all, but
	// are no problems.
	Warnings []Problem `json:"warnings,omitempty"`
	// Ignored are the names of other files and of folders.
	Ignored []string `json:"ignored,omitempty"`

	state *state
}

// Check reads a directory and delivers its objects to a handler. It does not
// log.
func Check(dir string, to Handler) (*Report, error) {
	snap, err := takeSnapshot(dir)
	if err != nil {
		return nil, err
	}
	r := &Report{Ignored: snap.ignored, state: newState()}
	r.state.read(snap, time.Now(), klog.Logger{})
	r.state.deliver(to)
	r.Status = r.state.status(dir, r.state.problems())
	for _, e := range snap.entries {
		for _, w := range r.state.files[e.name].active.warnings {
			r.Warnings = append(r.Warnings, problem{
				place: w.place, subject: w.subject, err: errors.New(w.text),
			}.report(false))
		}
	}
	return r, nil
}

// At returns a problem of the active definition of an object.
func (r *Report) At(kind, namespace, name, text string) Problem {
	key := objectKey{Kind: objectKind(kind), Namespace: namespace, Name: name}
	return problem{place: r.state.active[key].place, subject: key.String(), err: errors.New(text)}.report(false)
}
