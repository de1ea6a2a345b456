package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// slab returns the kernel's unreclaimable slab memory in bytes, which contains
// rules, rows and sets.
func slab() (float64, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	memory, err := proc.Meminfo()
	if err != nil {
		return 0, err
	}
	return float64(*memory.SUnreclaimBytes), nil
}

var (
	message = regexp.MustCompile(`(?m)^<\d+>\[ *(\d+\.\d+)\] (.*)$`)
	stall   = regexp.MustCompile(`soft lockup|hard LOCKUP|detected stall|self-detected|` +
		`blocked for more than|hogged CPU`)
)

// stalls returns the messages in the kernel's log after a time about soft
// lockups and other work that occupied the kernel for too long, and the time
// of the last message.
func stalls(since float64) (found []string, last float64, err error) {
	size, errSize := unix.Klogctl(unix.SYSLOG_ACTION_SIZE_BUFFER, nil)
	text := make([]byte, max(0, size))
	n, errRead := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, text)
	if err := errors.Join(errSize, errRead); err != nil {
		return nil, 0, fmt.Errorf("kernel log: %w", err)
	}
	for i, match := range message.FindAllStringSubmatch(string(text[:n]), -1) {
		if last, err = strconv.ParseFloat(match[1], 64); err != nil {
			return nil, 0, fmt.Errorf("kernel log: %w", err)
		}
		if i == 0 && last > since && since > 0 {
			found = append(found, "Messages of the kernel were lost.")
		}
		if last > since && stall.MatchString(match[2]) {
			found = append(found, match[0])
		}
	}
	return found, last, nil
}
