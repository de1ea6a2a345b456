package doctor

import (
	"fmt"
	"io"
	"strings"
)

// Print writes the report for people. Unless all is set, it leaves out the
// checks without a finding.
func (r *Report) Print(w io.Writer, all bool) {
	width, hidden := 0, 0
	for _, f := range r.Findings {
		width = max(width, len(f.Check))
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		if !all && f.Result == OK {
			hidden++
			continue
		}
		f.print(w, width)
	}
	if hidden > 0 {
		fmt.Fprintf(w, "%-7s  %d checks: -o wide lists them\n", OK, hidden)
	}
}

func (f *Finding) print(w io.Writer, width int) {
	indent := strings.Repeat(" ", len(Skipped)+2+width+2)
	fmt.Fprintf(w, "%-7s  %-*s  %s\n", f.Result, width, f.Check, f.Reason)
	for _, line := range f.Details {
		fmt.Fprintf(w, "%s- %s\n", indent, line)
	}
	if f.Remedy != "" {
		fmt.Fprintf(w, "%sremedy: %s\n", indent, f.Remedy)
	}
	if f.Bad() {
		fmt.Fprintf(w, "%ssee %s\n", indent, f.See)
	}
}
