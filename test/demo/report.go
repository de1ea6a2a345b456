package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// report prints the tour and counts its checks.
type report struct {
	w                       io.Writer
	scenes, checks, printed int // printed is the number of failures printed
	failures                []string
	err                     error // first error of writing
}

// print prints a text after a blank line.
func (r *report) print(format string, args ...any) {
	if r.err == nil {
		_, r.err = fmt.Fprintf(r.w, "\n"+format+"\n", args...)
	}
}

// heading prints the numbered heading of a scene.
func (r *report) heading(text string) {
	r.scenes++
	text = fmt.Sprintf("%d. %s", r.scenes, text)
	r.print("\n%s\n%s", text, strings.Repeat("-", len(text)))
}

// verdict counts a check, which passed if the error is nil, and returns its
// result.
func (r *report) verdict(err error) string {
	r.checks++
	if err == nil {
		return "ok"
	}
	r.failures = append(r.failures, err.Error())
	return "FAILED"
}

// check counts a check and prints its result with a sentence.
func (r *report) check(err error, format string, args ...any) {
	r.print("  %s: %s", r.verdict(err), fmt.Sprintf(format, args...))
	r.printFailures()
}

// table prints rows of cells, with the headings in the first row.
func (r *report) table(rows [][]any) {
	var aligned bytes.Buffer
	w := tabwriter.NewWriter(&aligned, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintf(w, strings.Repeat("%v\t", len(row))+"\n", row...)
	}
	w.Flush()
	var lines []string
	for line := range strings.Lines(aligned.String()) {
		lines = append(lines, "  "+strings.TrimRight(line, " \n"))
	}
	r.print("%s", strings.Join(lines, "\n"))
	r.printFailures()
}

// printFailures prints the failures that are not printed yet.
func (r *report) printFailures() {
	if r.printed < len(r.failures) {
		r.print("  FAILED: %s", strings.Join(r.failures[r.printed:], "\n  FAILED: "))
	}
	r.printed = len(r.failures)
}
