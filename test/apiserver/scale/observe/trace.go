package observe

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

// Trace follows what a process, its threads and its children send to and receive from the kernel by netlink: the system calls sendto,
// sendmsg, recvfrom and recvmsg. Programs in Go use others for connections, so that these are netlink's alone. The kernel carries a
// transaction out while it is being sent: the time of the call is the time that it takes.
type Trace struct {
	dir  string // of the instance
	pipe int
	stop chan struct{}
	done chan struct{}

	mu     sync.Mutex // guards what follows
	buffer string     // an incomplete line
	begun  map[string]float64
	total  Traffic
}

// Traffic is what was sent and received.
type Traffic struct {
	// Sends is how often something was sent: a request, or a transaction.
	Sends int
	// Sent and Received are in bytes.
	Sent, Received int64
	// Longest is the longest time that the kernel worked on what was sent at once.
	Longest time.Duration
	// Lost is how many events of the trace were lost; the numbers are too small then.
	Lost int
}

// Tracing is the kernel's tracing, mounted for this process.
type Tracing struct{ dir string }

// OpenTracing mounts tracefs in a folder that exists.
func OpenTracing(dir string) (*Tracing, error) {
	if err := unix.Mount("tracefs", dir, "tracefs", 0, ""); err != nil {
		return nil, fmt.Errorf("mount tracefs: %w", err)
	}
	return &Tracing{dir}, nil
}

// Close unmounts it.
func (t *Tracing) Close() error { return unix.Unmount(t.dir, unix.MNT_DETACH) }

// Follow begins a trace of that name. It follows a thread and whatever that makes from then on; the thread itself must sleep.
func (t *Tracing) Follow(name string, thread int) (*Trace, error) {
	trace := &Trace{
		dir: filepath.Join(t.dir, "instances", name), stop: make(chan struct{}), done: make(chan struct{}), begun: map[string]float64{},
	}
	if err := os.Mkdir(trace.dir, 0o755); err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	if err := trace.setUp(thread); err != nil {
		return nil, errors.Join(fmt.Errorf("trace: %w", err), os.Remove(trace.dir))
	}
	go trace.run()
	return trace, nil
}

func (t *Trace) setUp(thread int) error {
	const buffer = "16384" // kB, of each processor
	for _, setting := range [][2]string{
		{"buffer_size_kb", buffer},
		{"set_event_pid", strconv.Itoa(thread)},
		{"options/event-fork", "1"},
		{"events/syscalls/sys_enter_sendto/enable", "1"},
		{"events/syscalls/sys_enter_sendmsg/enable", "1"},
		{"events/syscalls/sys_exit_sendto/enable", "1"},
		{"events/syscalls/sys_exit_sendmsg/enable", "1"},
		{"events/syscalls/sys_exit_recvfrom/enable", "1"},
		{"events/syscalls/sys_exit_recvmsg/enable", "1"},
	} {
		if err := os.WriteFile(filepath.Join(t.dir, setting[0]), []byte(setting[1]), 0); err != nil {
			return err
		}
	}
	var err error
	t.pipe, err = unix.Open(filepath.Join(t.dir, "trace_pipe"), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	return err
}

// Close ends the trace.
func (t *Trace) Close() error {
	close(t.stop)
	<-t.done
	return errors.Join(
		os.WriteFile(filepath.Join(t.dir, "events/enable"), []byte("0"), 0),
		unix.Close(t.pipe),
		os.Remove(t.dir),
	)
}

// Take returns what there was since the last call.
func (t *Trace) Take() Traffic {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read()
	total := t.total
	t.total = Traffic{}
	return total
}

func (t *Trace) run() {
	const period = 50 * time.Millisecond
	defer close(t.done)
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-t.stop:
			return
		case <-tick.C:
		}
		t.mu.Lock()
		t.read()
		t.mu.Unlock()
	}
}

// read reads what there is. The caller holds mu.
func (t *Trace) read() {
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

// add takes note of a line. They look like this:
//
//	nft-4711    [001] .....  1234.567890: sys_sendmsg(fd: 3, msg: 7ffc01, flags: 0)
//	nft-4711    [001] .....  1234.567990: sys_sendmsg -> 0x14
//	CPU:1 [LOST 12 EVENTS]
func (t *Trace) add(line string) {
	if _, lost, found := strings.Cut(line, "[LOST "); found {
		n, _ := strconv.Atoi(strings.Fields(lost)[0])
		t.total.Lost += max(n, 1)
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
	task = task[strings.LastIndexByte(task, '-')+1:] // its number: the kernel does not always know its name any more, and shows <...> then
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
		t.total.Received += int64(n)
		return
	}
	t.total.Sends++
	t.total.Sent += int64(n)
	if begun, known := t.begun[task]; known {
		t.total.Longest = max(t.total.Longest, time.Duration((at-begun)*float64(time.Second)))
		delete(t.begun, task)
	}
}
