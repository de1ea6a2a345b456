package report

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/prometheus/procfs"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

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
	r, err := newReport(name, args)
	if err != nil {
		return nil, err
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
