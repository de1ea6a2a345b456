package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// result is what features.json holds.
type result struct {
	Command  string          `json:"command"`
	Machine  string          `json:"machine"`
	Kernel   string          `json:"kernel"`
	Load     string          `json:"load"` // average of the last minute
	Commit   string          `json:"commit"`
	Date     time.Time       `json:"date"`
	Features []featureResult `json:"features"`
}

type featureResult struct {
	Name  string       `json:"name"`
	About string       `json:"about"`
	Sizes []sizeResult `json:"sizes"` // the smaller one first
}

type sizeResult struct {
	Size    int      `json:"size"`
	Figures []figure `json:"figures"`
}

// commit is set by the linker.
var commit = "unknown"

// newResult returns a result without features, from this machine.
func newResult(command string) *result {
	r := &result{Command: command, Machine: runtime.GOARCH, Commit: commit, Date: time.Now().UTC()}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		r.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
				r.Machine = strings.TrimSpace(value)
			}
		}
	}
	r.Machine = fmt.Sprintf("%d cores %s", runtime.NumCPU(), r.Machine)
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		r.Load, _, _ = strings.Cut(string(text), " ")
	}
	return r
}

// publish writes features.txt and features.json into a folder.
func (r *result) publish(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	var table bytes.Buffer
	r.table(&table)
	if err := os.WriteFile(filepath.Join(folder, "features.txt"), table.Bytes(), 0o644); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "features.json"), append(text, '\n'), 0o644)
}

const (
	// growthOfSize is the larger size of a feature divided by the smaller one.
	growthOfSize = 4
	// steep is the largest growth that is not marked.
	steep = 1.5 * growthOfSize
	// A figure below a floor is not marked.
	floorSeconds = 0.005
	floorBytes   = 1 << 20
)

const legend = `Each figure stands at two sizes, total and in the kernel, followed by its growth: 4.0 is linear.
The mark ! means a growth of more than 6, to at least 5 ms or 1 MiB.

start          from Setup to the end of the first Sync, with an empty kernel
restart        the same with a new Backend, on top of the table that is in the kernel
endpoint       a change of one Service that uses the feature; median
plain Service  a change of a Service that does not use the feature, beside the others; median
stale flows    the search for stale UDP flows that follows a Sync
`

// table writes all figures for people to read.
func (r *result) table(w io.Writer) {
	fmt.Fprintf(w, "%s\n%s, load average %s, Linux %s, commit %s, %s\n\n%s",
		r.Command, r.Machine, r.Load, r.Kernel, r.Commit, r.Date.Format("2006-01-02 15:04 UTC"), legend)
	for _, f := range r.Features {
		f.table(w)
	}
}

// row writes a row of the table; it has two columns for each size, and two for
// the growth.
func row(w io.Writer, name string, columns ...string) {
	line := fmt.Sprintf("%-34s", name)
	for _, c := range columns {
		line += fmt.Sprintf("%11s", c)
	}
	fmt.Fprintln(w, strings.TrimRight(line, " "))
}

func (f *featureResult) table(w io.Writer) {
	small, large := f.Sizes[0], f.Sizes[1]
	fmt.Fprintf(w, "\n%s: %s\n", f.Name, f.About)
	row(w, "", fmt.Sprint(small.Size), "kernel", fmt.Sprint(large.Size), "kernel", "growth", "kernel")
	for _, name := range figureNames() {
		before, after := find(small.Figures, name), find(large.Figures, name)
		if name == heapInUse || name == peakMemory {
			row(w, name, megabytes(before.Bytes), "", megabytes(after.Bytes), "", growth(before.Bytes, after.Bytes, floorBytes))
			continue
		}
		row(w, name, before.seconds(), seconds(before.KernelSeconds), after.seconds(), seconds(after.KernelSeconds),
			before.growth(after), growth(before.KernelSeconds, after.KernelSeconds, floorSeconds))
		if before.StaleFlowSeconds+after.StaleFlowSeconds > 0 {
			row(w, "  stale flows", seconds(before.StaleFlowSeconds), "", seconds(after.StaleFlowSeconds), "",
				growth(before.StaleFlowSeconds, after.StaleFlowSeconds, floorSeconds))
		}
	}
}

// seconds formats the time of a figure, as a lower bound if it was given up.
func (f figure) seconds() string {
	if f.Exceeded {
		return fmt.Sprintf(">%g s", f.Seconds)
	}
	return seconds(f.Seconds)
}

// growth formats the growth of a figure's time, as a lower bound if the later
// one was given up.
func (f figure) growth(after figure) string {
	text := growth(f.Seconds, after.Seconds, floorSeconds)
	switch {
	case f.Exceeded:
		return "-"
	case after.Exceeded:
		return ">" + text
	}
	return text
}

// growth formats how many times a figure became larger, with a mark if that is
// noticeably more than the size did. Zero is a figure that was not measured.
func growth(before, after, floor float64) string {
	if before == 0 || after == 0 {
		return "-"
	}
	mark := " "
	if after/before > steep && after >= floor {
		mark = "!"
	}
	return fmt.Sprintf("%.1f %s", after/before, mark)
}

func seconds(s float64) string {
	switch {
	case s == 0:
		return "-"
	case s < 1:
		return fmt.Sprintf("%.2f ms", s*1e3)
	}
	return fmt.Sprintf("%.2f s", s)
}

func megabytes(bytes float64) string {
	if bytes == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f MB", bytes/1e6)
}
