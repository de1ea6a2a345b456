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

func (r *report) print(format string, args ...any) {
	if r.err == nil {
		_, r.err = fmt.Fprintf(r.w, format, args...)
	}
}

// scene prints a numbered heading and a paragraph.
func (r *report) scene(heading, text string) {
	r.scenes++
	heading = fmt.Sprintf("%d. %s", r.scenes, heading)
	r.print("\n\n%s\n%s\n", heading, strings.Repeat("-", len(heading)))
	r.text(text)
}

// text prints a paragraph, which contains its line breaks.
func (r *report) text(text string) { r.print("\n%s\n", strings.TrimSpace(text)) }

// commands prints command lines, as a user would enter them.
func (r *report) commands(lines ...string) { r.print("\n  $ %s\n", strings.Join(lines, "\n  $ ")) }

// block prints lines with an indentation.
func (r *report) block(lines ...string) { r.print("\n  %s\n", strings.Join(lines, "\n  ")) }

// verdict counts a check and returns its result. The check passed if the error
// is nil.
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
	r.print("\n  %s: %s\n", r.verdict(err), fmt.Sprintf(format, args...))
	r.printFailures()
}

// table prints rows of cells, with the headings in the first row.
func (r *report) table(rows [][]string) {
	var text bytes.Buffer
	aligned := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(aligned, strings.Join(row, "\t"))
	}
	aligned.Flush()
	r.print("\n")
	for line := range strings.Lines(text.String()) {
		r.print("  %s\n", strings.TrimRight(line, " \n"))
	}
	r.printFailures()
}

// printFailures prints the failures that are not printed yet.
func (r *report) printFailures() {
	for ; r.printed < len(r.failures); r.printed++ {
		r.print("  FAILED: %s\n", r.failures[r.printed])
	}
}
