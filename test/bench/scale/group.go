package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// group is a control group (cgroup v2) for a process and its children. It limits
// nothing.
type group struct {
	dir  string
	fd   *os.File
	peak atomic.Int64 // see takePeak
	stop chan struct{}
}

func newGroup(name string) (*group, error) {
	mounts, err := procfs.GetMounts()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(mounts, func(m *procfs.MountInfo) bool { return m.FSType == "cgroup2" })
	if i < 0 {
		return nil, errors.New("cgroup v2 is not mounted")
	}
	g := &group{dir: filepath.Join(mounts[i].MountPoint, name), stop: make(chan struct{})}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, fmt.Errorf("control group: %w", err)
	}
	if g.fd, err = os.Open(g.dir); err != nil {
		return nil, errors.Join(fmt.Errorf("control group: %w", err), os.Remove(g.dir))
	}
	go g.followPeak()
	return g, nil
}

// close kills the processes of the group and removes it.
func (g *group) close() error {
	close(g.stop)
	err := errors.Join(os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0), g.fd.Close())
	removed := os.Remove(g.dir)
	for end := time.Now().Add(5 * time.Second); removed != nil && time.Now().Before(end); removed = os.Remove(g.dir) {
		time.Sleep(10 * time.Millisecond) // killed processes take some time to end
	}
	return errors.Join(err, removed)
}

// cpu returns the CPU time of all processes that are or were in the group.
func (g *group) cpu() (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join(g.dir, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	var us int64
	_, err = fmt.Sscanf(string(text), "usage_usec %d", &us)
	return time.Duration(us) * time.Microsecond, err
}

// followPeak samples the resident memory of all processes of the group. It may
// miss processes that live shorter than its period.
func (g *group) followPeak() {
	for {
		select {
		case <-g.stop:
			return
		case <-time.After(20 * time.Millisecond):
		}
		text, _ := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
		var sum int64
		for _, pid := range strings.Fields(string(text)) {
			var size, resident int64 // in pages
			statm, _ := os.ReadFile("/proc/" + pid + "/statm")
			fmt.Sscan(string(statm), &size, &resident)
			sum += resident * int64(os.Getpagesize())
		}
		g.peak.Store(max(g.peak.Load(), sum))
	}
}

// takePeak returns the peak of the resident memory since the last call, in
// bytes. Shared pages count for each process.
func (g *group) takePeak() int64 { return g.peak.Swap(0) }

// slab returns the kernel's unreclaimable slab memory in bytes, which contains
// rules, rows and sets.
func slab() (int64, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	memory, err := proc.Meminfo()
	if err != nil {
		return 0, err
	}
	return int64(*memory.SUnreclaimBytes), nil
}

// kernelLog is a position in the kernel's log.
type kernelLog struct{ last float64 }

// readKernelLog returns the end of the log.
func readKernelLog() (*kernelLog, error) {
	l := new(kernelLog)
	_, err := l.stalls()
	return l, err
}

// stalls returns messages since the last call about soft lockups and other work
// that occupied the kernel for too long.
func (l *kernelLog) stalls() (found []string, err error) {
	size, err := unix.Klogctl(unix.SYSLOG_ACTION_SIZE_BUFFER, nil)
	if err != nil {
		return nil, fmt.Errorf("kernel log: %w", err)
	}
	text := make([]byte, size)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, text)
	if err != nil {
		return nil, fmt.Errorf("kernel log: %w", err)
	}
	line := regexp.MustCompile(`(?m)^<\d+>\[ *(\d+\.\d+)\] (.*)$`)
	stall := regexp.MustCompile(`soft lockup|hard LOCKUP|detected stall|self-detected|blocked for more than|hogged CPU`)
	since := l.last
	for i, match := range line.FindAllStringSubmatch(string(text[:n]), -1) {
		at, err := strconv.ParseFloat(match[1], 64)
		if err != nil || at <= since {
			continue
		}
		if l.last = at; i == 0 && since > 0 {
			found = append(found, "Messages of the kernel were lost.")
		}
		if stall.MatchString(match[2]) {
			found = append(found, match[0])
		}
	}
	return found, nil
}
