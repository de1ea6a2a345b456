package observe

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Group is a control group of its own for a process and its children (cgroup v2). It accounts, and limits nothing.
type Group struct {
	dir string
	fd  *os.File
}

// NewGroup makes a group of that name, which no other must have.
func NewGroup(name string) (*Group, error) {
	root, err := mountOf("cgroup2")
	if err != nil {
		return nil, err
	}
	g := &Group{dir: filepath.Join(root, name)}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, fmt.Errorf("control group: %w", err)
	}
	if g.fd, err = os.Open(g.dir); err != nil {
		return nil, errors.Join(fmt.Errorf("control group: %w", err), os.Remove(g.dir))
	}
	return g, nil
}

// mountOf returns where a file system of that type is mounted.
func mountOf(typ string) (string, error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[2] == typ {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("no file system of type %s is mounted", typ)
}

// Fd is the descriptor with which processes are started in the group.
func (g *Group) Fd() int { return int(g.fd.Fd()) }

// Close ends what runs in the group and removes it.
func (g *Group) Close() error {
	err := errors.Join(os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0), g.fd.Close())
	const patience = 5 * time.Second
	removed := os.Remove(g.dir)
	for end := time.Now().Add(patience); removed != nil && time.Now().Before(end); removed = os.Remove(g.dir) {
		time.Sleep(10 * time.Millisecond) // processes leave after they are killed
	}
	return errors.Join(err, removed)
}

// CPU is the CPU time of all processes that are or were in the group, in the kernel and outside of it.
func (g *Group) CPU() (time.Duration, error) {
	file, err := os.Open(filepath.Join(g.dir, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "usage_usec "); ok {
			us, err := strconv.ParseInt(value, 10, 64)
			return time.Duration(us) * time.Microsecond, err
		}
	}
	return 0, fmt.Errorf("%s: no usage_usec", file.Name())
}

// Resident is the memory that all processes of the group have now, in bytes. Pages that they share count for each.
func (g *Group) Resident() (int64, error) {
	text, err := os.ReadFile(filepath.Join(g.dir, "cgroup.procs"))
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, pid := range strings.Fields(string(text)) {
		// Size and resident size, in pages.
		statm, err := os.ReadFile("/proc/" + pid + "/statm")
		if fields := strings.Fields(string(statm)); err == nil && len(fields) > 1 {
			pages, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return 0, err
			}
			sum += pages * int64(os.Getpagesize())
		}
	}
	return sum, nil
}

// Status is memory of one process, in bytes.
type Status struct{ RSS, HighWater int64 }

// StatusOf reads VmRSS and VmHWM of a process.
func StatusOf(pid int) (Status, error) {
	values, err := kilobytes(fmt.Sprintf("/proc/%d/status", pid))
	return Status{RSS: values["VmRSS"], HighWater: values["VmHWM"]}, err
}

// kilobytes reads a file of lines "NAME: VALUE kB" and returns the values in bytes.
func kilobytes(path string) (map[string]int64, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the process ended: %w", err)
	}
	if err != nil {
		return nil, err
	}
	values := map[string]int64{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[2] != "kB" {
			continue
		}
		n, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		values[strings.TrimSuffix(fields[0], ":")] = n << 10
	}
	return values, nil
}
