package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// trace records what a process and its children exchange with the kernel through
// netlink: the system calls sendto, sendmsg, recvfrom and recvmsg. Go programs
// use other calls for connections. The kernel executes a transaction while it is
// sent, so the duration of the call is that of the transaction.
type trace struct {
	dir  string // of the instance in tracefs
	pipe int
	stop chan struct{}
	done chan struct{}

	mu     sync.Mutex // guards the rest
	buffer string     // an incomplete line
	begun  map[string]float64
	total  traffic
}

// traffic is what was exchanged.
type traffic struct {
	sends          int // requests or transactions
	sent, received int64
	longest        time.Duration // of one send
	lost           bool          // reports that events were lost, and the numbers are too small
}

// follow starts a trace of a thread and all threads and processes that it
// starts.
func follow(tracing, name string, thread int) (*trace, error) {
	t := &trace{
		dir: filepath.Join(tracing, "instances", name), pipe: -1,
		stop: make(chan struct{}), done: make(chan struct{}), begun: map[string]float64{},
	}
	if err := os.Mkdir(t.dir, 0o755); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	if err := t.setUp(thread); err != nil {
		return nil, errors.Join(fmt.Errorf("trace: %w", err), os.Remove(t.dir))
	}
	go t.run()
	return t, nil
}

func (t *trace) setUp(thread int) (err error) {
	settings := [][2]string{
		{"buffer_size_kb", "16384"}, // of each processor
		{"set_event_pid", strconv.Itoa(thread)},
		{"options/event-fork", "1"},
	}
	for _, event := range []string{
		"enter_sendto", "enter_sendmsg", "exit_sendto", "exit_sendmsg", "exit_recvfrom", "exit_recvmsg",
	} {
		settings = append(settings, [2]string{"events/syscalls/sys_" + event + "/enable", "1"})
	}
	for _, setting := range settings {
		if err := os.WriteFile(filepath.Join(t.dir, setting[0]), []byte(setting[1]), 0); err != nil {
			return err
		}
	}
	t.pipe, err = unix.Open(filepath.Join(t.dir, "trace_pipe"), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	return err
}

// close ends the trace.
func (t *trace) close() error {
	close(t.stop)
	<-t.done
	disable := os.WriteFile(filepath.Join(t.dir, "events/enable"), []byte("0"), 0)
	return errors.Join(disable, unix.Close(t.pipe), os.Remove(t.dir))
}

// take returns the traffic since the last call.
func (t *trace) take() traffic {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read()
	total := t.total
	t.total = traffic{}
	return total
}

// run reads before the buffer overflows.
func (t *trace) run() {
	defer close(t.done)
	for {
		select {
		case <-t.stop:
			return
		case <-time.After(50 * time.Millisecond):
		}
		t.mu.Lock()
		t.read()
		t.mu.Unlock()
	}
}

// read reads all available events. The caller holds mu.
func (t *trace) read() {
	chunk := make([]byte, 64<<10)
	for {
		n, err := unix.Read(t.pipe, chunk)
		if n <= 0 || err != nil {
			return
		}
		t.buffer += string(chunk[:n])
		for {
			line, rest, found := strings.Cut(t.buffer, "\n")
			if !found {
				break
			}
			t.buffer = rest
			t.add(line)
		}
	}
}

// add adds an event, such as
//
//	nft-4711    [001] .....  1234.567890: sys_sendmsg(fd: 3, msg: 7ffc01, flags: 0)
//	nft-4711    [001] .....  1234.567990: sys_sendmsg -> 0x14
//	CPU:1 [LOST 12 EVENTS]
func (t *trace) add(line string) {
	if strings.Contains(line, "[LOST ") {
		t.total.lost = true
		return
	}
	head, event, found := strings.Cut(line, ": sys_")
	fields := strings.Fields(head)
	if !found || len(fields) < 4 {
		return
	}
	at, err := strconv.ParseFloat(fields[len(fields)-1], 64)
	if err != nil {
		return
	}
	task, _, _ := strings.Cut(head, " [")
	task = task[strings.LastIndexByte(task, '-')+1:] // the name can contain blanks, or be <...>
	call, result, ended := strings.Cut(event, " -> ")
	if !ended {
		t.begun[task] = at
		return
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(result, "0x"), 16, 64)
	if failed := err != nil || int64(n) < 0; failed {
		n = 0
	}
	if strings.HasPrefix(call, "recv") {
		t.total.received += int64(n)
		return
	}
	t.total.sends++
	t.total.sent += int64(n)
	if begun, known := t.begun[task]; known {
		t.total.longest = max(t.total.longest, time.Duration((at-begun)*float64(time.Second)))
		delete(t.begun, task)
	}
}
