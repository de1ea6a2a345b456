// Package report holds the figures of all benchmarks, computes them from
// samples, and writes them as JSON, as text tables and as SVG plots. [Main] is
// the command line that the benchmarks share. The package measures only the
// machine that it runs on.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Report is the result of one run of a benchmark.
type Report struct {
	Command string    `json:"command"`
	Commit  string    `json:"commit"`
	Date    time.Time `json:"date"`
	Machine Machine   `json:"machine"`
	// Versions are the versions of the programs that were measured.
	Versions map[string]string `json:"versions,omitempty"`
	Tables   []*Table          `json:"tables"`
	Plots    []*Plot           `json:"plots,omitempty"`
	// Notes explain the tables.
	Notes []string `json:"notes,omitempty"`

	name     string // of the files
	folder   string // of Save; empty for none
	progress io.Writer
}

// commit is set by the linker.
var commit = "unknown"

// newReport returns an empty report.
func newReport(name string, args []string) (*Report, error) {
	r := &Report{
		Command: strings.Join(append([]string{name}, args...), " "), Commit: commit,
		Date: time.Now().UTC().Truncate(time.Second), name: name, progress: os.Stderr,
	}
	var err error
	r.Machine, err = thisMachine()
	return r, err
}

// Table returns the table of that title, and adds it if there is none.
func (r *Report) Table(title string) *Table {
	return findOrAdd(&r.Tables, &Table{Title: title}, func(t *Table) bool { return t.Title == title })
}

// Plot returns the plot of that name, and adds it if there is none.
func (r *Report) Plot(p Plot) *Plot {
	return findOrAdd(&r.Plots, &p, func(old *Plot) bool { return old.Name == p.Name })
}

// findOrAdd returns the first element that is wanted, and adds one if there is
// none.
func findOrAdd[T any](all *[]*T, one *T, wanted func(*T) bool) *T {
	if i := slices.IndexFunc(*all, wanted); i >= 0 {
		return (*all)[i]
	}
	*all = append(*all, one)
	return one
}

// Say prints a line about the progress.
func (r *Report) Say(format string, args ...any) {
	fmt.Fprintf(r.progress, time.Now().Format("15:04:05")+"  "+format+"\n", args...)
}

// Save writes the figures so far into the output folder, if there is one.
func (r *Report) Save() error { return r.write(r.folder) }

// write writes NAME.json, NAME.txt and the plots.
func (r *Report) write(folder string) error {
	if folder == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err = errors.Join(err, os.MkdirAll(folder, 0o755)); err != nil {
		return err
	}
	for suffix, content := range map[string]string{".json": string(text) + "\n", ".txt": r.String()} {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, r.name+suffix), []byte(content), 0o644))
	}
	for _, p := range r.Plots {
		err = errors.Join(err, p.save(folder))
	}
	return err
}

// String returns the header, all tables and the notes.
func (r *Report) String() string {
	about := []string{r.Machine.String()}
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		about = append(about, name+": "+r.Versions[name])
	}
	about = append(about, "commit "+r.Commit, r.Date.Format("2006-01-02 15:04 UTC"))
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n%s\n", r.Command, strings.Join(about, ", "))
	for _, t := range r.Tables {
		fmt.Fprintf(&out, "\n%s\n", t.Title)
		t.write(&out)
	}
	if len(r.Notes) > 0 {
		fmt.Fprintf(&out, "\n%s\n", strings.Join(r.Notes, "\n"))
	}
	return out.String()
}
