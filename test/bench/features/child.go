package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

// childFlag is the flag that makes a process a child.
const childFlag = "measure"

// figure is a value of one feature at one size, or the medians of several.
type figure struct {
	Name string `json:"name"`
	// Seconds is the time of Sync and of the calls that precede it, and
	// KernelSeconds that of its transactions.
	Seconds       float64 `json:"seconds,omitempty"`
	KernelSeconds float64 `json:"kernelSeconds,omitempty"`
	// StaleFlowSeconds is the time for cleaning stale flows after a sync.
	StaleFlowSeconds float64 `json:"staleFlowSeconds,omitempty"`
	Bytes            float64 `json:"bytes,omitempty"`
	Transactions     int     `json:"transactions,omitempty"`
	Samples          int     `json:"samples,omitempty"`
	// Exceeded reports whether the sync was given up after Seconds.
	Exceeded bool `json:"exceeded,omitempty"`
}

// figureNames returns the names of all figures in the order of the table.
func figureNames() []string {
	return []string{
		start, restart, added, replaced, removed, plainAdded, plainReplaced, plainRemoved, heapInUse, peakMemory,
	}
}

// measureInChild measures a feature at one size in a new process and network
// namespace. If no figure comes within the budget, it returns those that came
// before, and marks the one that is missing.
func (o *options) measureInChild(f *feature, size int) ([]figure, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "--"+childFlag, f.name, "--size", strconv.Itoa(size),
		"--tries", strconv.Itoa(o.tries), "--budget", o.budget.String())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	var log bytes.Buffer
	cmd.Stderr = &log
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a process in a network namespace (needs root): %w", err)
	}
	var exceeded atomic.Bool
	giveUp := time.AfterFunc(o.budget, func() {
		exceeded.Store(true)
		cmd.Process.Kill()
		// Before Linux 6.6 the kernel completes its validation of the table
		// first, which can take even longer.
		time.Sleep(o.budget)
		stdout.Close() // ends the loop below
	})
	var samples []figure
	for decoder := json.NewDecoder(stdout); ; giveUp.Reset(o.budget) {
		var sample figure
		if err = decoder.Decode(&sample); err != nil {
			break // usually io.EOF, at the end of the process
		}
		samples = append(samples, sample)
	}
	giveUp.Stop()
	if exceeded.Load() {
		if errors.Is(err, os.ErrClosed) {
			fmt.Fprintln(os.Stderr, "The kernel has not ended the last sync: the next figures are not reliable.")
		}
		go cmd.Wait()
		return o.markExceeded(medians(samples)), nil
	}
	if ended := cmd.Wait(); ended != nil {
		return medians(samples), fmt.Errorf("%w\n%s", ended, log.Bytes())
	}
	if err != io.EOF {
		return medians(samples), err
	}
	peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	return append(medians(samples), figure{Name: peakMemory, Bytes: float64(peak), Samples: 1}), nil
}

// markExceeded adds the figure that was being measured, if it has no sample.
func (o *options) markExceeded(figures []figure) []figure {
	for _, name := range figureNames() {
		if find(figures, name).Name == "" {
			return append(figures, figure{Name: name, Seconds: o.budget.Seconds(), Exceeded: true})
		}
	}
	return figures
}

// find returns the figure of a name, or a zero one if there is none.
func find(figures []figure, name string) figure {
	for _, f := range figures {
		if f.Name == name {
			return f
		}
	}
	return figure{}
}

// medians returns one figure for each name, in the order of the table.
func medians(samples []figure) (figures []figure) {
	for _, name := range figureNames() {
		same := slices.DeleteFunc(slices.Clone(samples), func(s figure) bool { return s.Name != name })
		if len(same) == 0 {
			continue
		}
		median := func(field func(*figure) float64) float64 {
			values := make([]float64, len(same))
			for i := range same {
				values[i] = field(&same[i])
			}
			slices.Sort(values)
			return values[len(values)/2]
		}
		figures = append(figures, figure{
			Name:             name,
			Seconds:          median(func(f *figure) float64 { return f.Seconds }),
			KernelSeconds:    median(func(f *figure) float64 { return f.KernelSeconds }),
			StaleFlowSeconds: median(func(f *figure) float64 { return f.StaleFlowSeconds }),
			Bytes:            median(func(f *figure) float64 { return f.Bytes }),
			Samples:          len(same),
		})
	}
	return figures
}
