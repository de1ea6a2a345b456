package observe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Slab is the kernel's memory for small objects that it does not give back on demand (SUnreclaim), of the whole machine, in bytes.
// Rules, rows and sets are in it.
func Slab() (int64, error) {
	values, err := kilobytes("/proc/meminfo")
	return values["SUnreclaim"], err
}

// AwaitCalm waits until little else runs on the machine, but not longer than the limit: what was measured before has left work behind,
// such as namespaces to be removed. It tells whether the machine came to be calm.
func AwaitCalm(ctx context.Context, limit time.Duration) (calm bool, err error) {
	const (
		window = 500 * time.Millisecond
		little = 0.1 // of all processors
	)
	for end := time.Now().Add(limit); time.Now().Before(end); {
		busyBefore, allBefore, err := ticks()
		if err != nil {
			return false, err
		}
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-time.After(window):
		}
		busy, all, err := ticks()
		if err != nil {
			return false, err
		}
		if float64(busy-busyBefore) < little*float64(all-allBefore) {
			return true, nil
		}
	}
	return false, nil
}

// ticks returns the time of all processors, and that in which they were not idle.
func ticks() (busy, all int64, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line)[1:9] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("/proc/stat: %w", err)
		}
		all += n
		const idle, ioWait = 3, 4
		if i != idle && i != ioWait {
			busy += n
		}
	}
	return busy, all, nil
}

// KernelLog reads what the kernel says from now on.
type KernelLog struct{ file *os.File }

// OpenKernelLog begins.
func OpenKernelLog() (*KernelLog, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/kmsg: %w", err)
	}
	if _, err := unix.Seek(fd, 0, io.SeekEnd); err != nil {
		return nil, errors.Join(fmt.Errorf("end of /dev/kmsg: %w", err), unix.Close(fd))
	}
	return &KernelLog{os.NewFile(uintptr(fd), "/dev/kmsg")}, nil
}

// Stalls returns the messages so far that tell of work that held the kernel for too long.
func (l *KernelLog) Stalls() ([]string, error) {
	stall := regexp.MustCompile(`soft lockup|hard LOCKUP|detected stall|self-detected|blocked for more than|hogged CPU`)
	raw, err := l.file.SyscallConn()
	if err != nil {
		return nil, err
	}
	out := []string{}
	record := make([]byte, 8192)
	var reading error
	err = raw.Control(func(fd uintptr) {
		for {
			n, err := unix.Read(int(fd), record)
			if errors.Is(err, unix.EPIPE) { // records were overwritten before they were read
				out = append(out, "messages of the kernel were lost")
				continue
			}
			if err != nil {
				if !errors.Is(err, unix.EAGAIN) {
					reading = err
				}
				return
			}
			if text := bytes.TrimSpace(record[:n]); stall.Match(text) {
				out = append(out, string(text))
			}
		}
	})
	return out, errors.Join(err, reading)
}

// Close ends reading.
func (l *KernelLog) Close() error { return l.file.Close() }
