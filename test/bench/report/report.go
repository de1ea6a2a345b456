// Package report holds the figures of all benchmarks, computes them from
// samples, and writes them as JSON, as text tables and as SVG plots. [Main] is
// the command line that the benchmarks share. The package measures only the
// machine that it runs on.
package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
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

	name   string // of the files
	folder string // of Save; empty for none
}

// commit is set by the linker.
var commit = "unknown"

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
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05")+"  "+format+"\n", args...)
}

// AddRow adds a row to a table, and prints it.
func (r *Report) AddRow(table string, figures ...Figure) {
	r.Table(table).Add(figures...)
	var texts []string
	for _, f := range figures {
		texts = append(texts, strings.TrimSpace(f.Name+" "+f.String()))
	}
	r.Say("%s", strings.Join(texts, ", "))
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

// Benchmark is a command that measures something.
type Benchmark interface {
	// AddFlags adds the flags of the benchmark.
	AddFlags(*pflag.FlagSet)
	// Measure validates the flags and adds figures to the report. If ctx ends
	// it cleans up and returns an error.
	Measure(ctx context.Context, r *Report) error
}

// Main runs a benchmark with the command line of the process, and exits.
func Main(name, about string, b Benchmark) {
	// Signals are caught until the end: a second one must not interrupt the
	// cleanup after the first one.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	_, err := Run(ctx, name, about, b, os.Args[1:], os.Stdout)
	switch {
	case err == nil || errors.Is(err, pflag.ErrHelp):
	case ctx.Err() != nil:
		fmt.Fprintf(os.Stderr, "%s: interrupted: %v\n", name, err)
		os.Exit(130) // as shells do for SIGINT
	default:
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Run runs a benchmark and prints its tables, also the incomplete tables of one
// that fails. The error is pflag.ErrHelp if it printed help instead.
func Run(ctx context.Context, name, about string, b Benchmark, args []string, stdout io.Writer) (*Report, error) {
	machine, err := thisMachine()
	if err != nil {
		return nil, err
	}
	r := &Report{
		Command: strings.Join(append([]string{name}, args...), " "), Commit: commit, Machine: machine,
		Date: time.Now().UTC().Truncate(time.Second), name: name,
	}
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	flags.SortFlags = false
	flags.SetOutput(stdout)
	flags.Usage = func() {
		fmt.Fprintf(stdout, "%s\n\nUsage:\n  %s [flags]\n\nFlags:\n%s", about, name, flags.FlagUsagesWrapped(110))
	}
	b.AddFlags(flags)
	flags.StringVar(&r.folder, "output", "", "`FOLDER` for tables, JSON and plots, also of a run that fails.")
	publish := flags.String("publish", "", "Another `FOLDER` for them, if the run succeeds.")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	err = b.Measure(ctx, r)
	if len(r.Tables) > 0 {
		fmt.Fprint(stdout, r)
		err = errors.Join(err, r.Save())
	}
	if err == nil {
		err = r.write(*publish)
	}
	return r, err
}

// Machine describes where the figures were measured.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory uint64 `json:"memoryBytes"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	NFT    string `json:"nft,omitempty"` // version of the program that kube-proxy runs
	// Load is the load average of one minute when the benchmark began.
	Load float64 `json:"loadAverage"`
}

// String describes the machine in a line.
func (m Machine) String() string {
	return fmt.Sprintf("%d cores %s, %d GB, Linux %s, %s, nft %s, load average %.1f",
		m.Cores, m.CPU, (m.Memory+1<<29)>>30, m.Kernel, m.Go, m.NFT, m.Load)
}

// thisMachine describes the machine that it runs on.
func thisMachine() (Machine, error) {
	m := Machine{Cores: runtime.NumCPU(), Go: runtime.Version(), CPU: runtime.GOARCH}
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return m, err
	}
	memory, errMemory := proc.Meminfo()
	load, errLoad := LoadAverage()
	var name unix.Utsname
	if err := errors.Join(errMemory, errLoad, unix.Uname(&name)); err != nil {
		return m, err
	}
	m.Memory, m.Load, m.Kernel = *memory.MemTotalBytes, load, unix.ByteSliceToString(name.Release[:])
	if cpus, err := proc.CPUInfo(); err == nil && len(cpus) > 0 && cpus[0].ModelName != "" {
		m.CPU = cpus[0].ModelName
	}
	if out, err := exec.Command("nft", "--version").Output(); err == nil {
		m.NFT = strings.TrimPrefix(strings.Fields(string(out) + " ?")[1], "v")
	}
	return m, nil
}

// LoadAverage returns the load average of the last minute.
func LoadAverage() (load float64, err error) {
	text, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscan(string(text), &load)
	}
	return load, err
}
