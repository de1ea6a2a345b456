package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/bench/stage"
)

// subject is a node whose proxy is observed.
type subject struct {
	*stage.Node
	tracing string
	starts  int
	account *account // nil while the proxy does not run
}

// start starts the proxy. Its account begins with its first system call.
func (s *subject) start(ctx context.Context) (err error) {
	s.starts++
	name := fmt.Sprintf("nftproxy-scale-%d-%s-%d", os.Getpid(), s.Pod.Name, s.starts)
	if s.account, err = newAccount(s.tracing, name); err != nil {
		return err
	}
	s.Config.Attributes = syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(s.account.fd.Fd())}
	s.Config.Prepare = func() error { return s.account.follow(unix.Gettid()) }
	return s.Start(ctx)
}

// stop ends the proxy. Its table stays.
func (s *subject) stop() (err error) {
	s.Stop()
	if s.account != nil {
		err = s.account.close()
		s.account = nil
	}
	return err
}

// remove ends the proxy and removes the node, unless there is none.
func (s *subject) remove() error {
	if s == nil {
		return nil
	}
	return errors.Join(s.stop(), s.Remove())
}

// series collects measurements of one kind.
type series struct {
	latency, floor, above, cpu, longest report.Sample // times
	sends, sent, received               report.Sample
	lost                                bool
}

// measure calls f and adds the CPU time and traffic of the proxy meanwhile.
func (s *subject) measure(to *series, f func() error) error {
	s.account.takeTraffic()
	before, err := s.account.cpu()
	if err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return s.charge(to, before)
}

// charge adds the CPU time since before, and the traffic.
func (s *subject) charge(to *series, before time.Duration) error {
	after, err := s.account.cpu()
	t := s.account.takeTraffic()
	to.cpu.Add(after - before)
	to.sends, to.sent = append(to.sends, float64(t.sends)), append(to.sent, float64(t.sent))
	to.received = append(to.received, float64(t.received))
	to.longest.Add(t.longest)
	to.lost = to.lost || t.lost
	return err
}

// settle waits until the proxy has been idle for so long that it would
// execute a change without delay.
func (s *subject) settle() error {
	const (
		look   = 50 * time.Millisecond
		little = 5 * time.Millisecond // of CPU time in a look: timers take less, every sync takes more
		limit  = time.Minute
	)
	idle := 1200 * time.Millisecond // minSyncPeriod of kube-proxy is 1 s
	if s.Proxy == stage.Product || s.Proxy == stage.Counting {
		idle = 200 * time.Millisecond
	}
	var before time.Duration
	began, busy := time.Now(), time.Now()
	for time.Since(busy) < idle && time.Since(began) < limit {
		now, err := s.account.cpu()
		if err != nil {
			return err
		}
		if now-before > little {
			busy = time.Now()
		}
		before = now
		if err := s.Process.Pause(look); err != nil {
			return err
		}
	}
	return nil
}

// memory returns VmRSS, VmHWM, and the peak of all processes since the last
// call.
func (s *subject) memory() ([]report.Figure, error) {
	proc, err := procfs.NewProc(s.Process.PID)
	if err != nil {
		return nil, err
	}
	status, err := proc.NewStatus()
	peak := max(s.account.takePeak(), int64(status.VmRSS))
	return []report.Figure{
		report.Value("VmRSS", report.Bytes, status.VmRSS),
		report.Value("VmHWM", report.Bytes, status.VmHWM),
		report.Value("with children", report.Bytes, peak),
	}, err
}

// account measures what a process and its children use: the CPU time of a
// control group (cgroup v2), the peak of their memory, and what they exchange
// with the kernel through netlink. The latter is a trace of the system calls
// sendto, sendmsg, recvfrom and recvmsg; Go programs use other calls for
// connections. The kernel executes a transaction while it is sent, so the
// duration of the call is the duration of the transaction.
type account struct {
	group, trace string   // folders
	fd           *os.File // of the group
	pipe         int      // of the trace, -1 before follow
	stop, done   chan struct{}

	mu     sync.Mutex // guards the rest
	peak   int64      // of the resident memory of all processes, in bytes
	buffer string     // an incomplete line of the trace
	begun  map[string]float64
	total  traffic
}

// traffic is what was exchanged through netlink.
type traffic struct {
	sends          int // requests or transactions
	sent, received int64
	longest        time.Duration // of one send
	lost           bool          // reports that events were lost, and the numbers are too small
}

// newAccount makes the control group. The trace begins with follow.
func newAccount(tracing, name string) (*account, error) {
	mounts, err := procfs.GetMounts()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(mounts, func(m *procfs.MountInfo) bool { return m.FSType == "cgroup2" })
	if i < 0 {
		return nil, errors.New("cgroup v2 is not mounted")
	}
	a := &account{
		group: filepath.Join(mounts[i].MountPoint, name), trace: filepath.Join(tracing, "instances", name), pipe: -1,
		begun: map[string]float64{}, stop: make(chan struct{}), done: make(chan struct{}),
	}
	if err := os.Mkdir(a.group, 0o755); err != nil {
		return nil, fmt.Errorf("control group: %w", err)
	}
	if a.fd, err = os.Open(a.group); err != nil {
		return nil, errors.Join(fmt.Errorf("control group: %w", err), os.Remove(a.group))
	}
	go a.run()
	return a, nil
}

// follow starts the trace of a thread and all that it starts.
func (a *account) follow(thread int) (err error) {
	if err := os.Mkdir(a.trace, 0o755); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
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
		err = errors.Join(err, os.WriteFile(filepath.Join(a.trace, setting[0]), []byte(setting[1]), 0))
	}
	pipe, errPipe := unix.Open(filepath.Join(a.trace, "trace_pipe"), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err = errors.Join(err, errPipe); err != nil {
		return errors.Join(fmt.Errorf("trace: %w", err), os.Remove(a.trace))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pipe = pipe
	return nil
}

// close kills the processes of the group, and removes the group and the trace.
func (a *account) close() error {
	close(a.stop)
	<-a.done
	err := errors.Join(os.WriteFile(filepath.Join(a.group, "cgroup.kill"), []byte("1"), 0), a.fd.Close())
	removed := os.Remove(a.group)
	for end := time.Now().Add(5 * time.Second); removed != nil && time.Now().Before(end); removed = os.Remove(a.group) {
		time.Sleep(10 * time.Millisecond) // killed processes take some time to end
	}
	err = errors.Join(err, removed)
	if a.pipe >= 0 {
		disable := os.WriteFile(filepath.Join(a.trace, "events/enable"), []byte("0"), 0)
		err = errors.Join(err, disable, unix.Close(a.pipe), os.Remove(a.trace))
	}
	return err
}

// cpu returns the CPU time of all processes that are or were in the group.
func (a *account) cpu() (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join(a.group, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	var us int64
	_, err = fmt.Sscanf(string(text), "usage_usec %d", &us)
	return time.Duration(us) * time.Microsecond, err
}

// takePeak returns the peak of the memory since the last call. Pages that
// processes share count for each.
func (a *account) takePeak() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	peak := a.peak
	a.peak = 0
	return peak
}

// takeTraffic returns the traffic since the last call.
func (a *account) takeTraffic() traffic {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read()
	total := a.total
	a.total = traffic{}
	return total
}

// run samples the memory, and reads the trace before its buffer overflows. It
// may miss processes that live shorter than its period.
func (a *account) run() {
	defer close(a.done)
	for {
		select {
		case <-a.stop:
			return
		case <-time.After(20 * time.Millisecond):
		}
		text, _ := os.ReadFile(filepath.Join(a.group, "cgroup.procs"))
		var sum int64
		for _, pid := range strings.Fields(string(text)) {
			var size, resident int64 // in pages; none if the process has ended
			statm, _ := os.ReadFile("/proc/" + pid + "/statm")
			fmt.Sscan(string(statm), &size, &resident)
			sum += resident * int64(os.Getpagesize())
		}
		a.mu.Lock()
		a.peak = max(a.peak, sum)
		a.read()
		a.mu.Unlock()
	}
}

// read reads all available events. The caller holds mu.
func (a *account) read() {
	for chunk := make([]byte, 64<<10); ; {
		n, err := unix.Read(a.pipe, chunk)
		if n <= 0 || err != nil {
			return
		}
		lines := strings.Split(a.buffer+string(chunk[:n]), "\n")
		a.buffer = lines[len(lines)-1]
		for _, line := range lines[:len(lines)-1] {
			a.add(line)
		}
	}
}

// add adds an event, such as
//
//	nft-4711    [001] .....  1234.567890: sys_sendmsg(fd: 3, msg: 7ffc01, flags: 0)
//	nft-4711    [001] .....  1234.567990: sys_sendmsg -> 0x14
//	CPU:1 [LOST 12 EVENTS]
func (a *account) add(line string) {
	a.total.lost = a.total.lost || strings.Contains(line, "[LOST ")
	match := event.FindStringSubmatch(line)
	if match == nil {
		return
	}
	task, call, result := match[1], match[3], match[4]
	at, err := strconv.ParseFloat(match[2], 64)
	if result == "" || err != nil {
		a.begun[task] = at
		return
	}
	n, err := strconv.ParseInt(result, 16, 64)
	if err != nil { // negative
		n = 0
	}
	if strings.HasPrefix(call, "recv") {
		a.total.received += n
		return
	}
	a.total.sends++
	a.total.sent += n
	if begun, known := a.begun[task]; known {
		a.total.longest = max(a.total.longest, time.Duration((at-begun)*float64(time.Second)))
		delete(a.begun, task)
	}
}

// event matches the task, time, call and result of an event. The name of the
// task can contain blanks, or be <...>.
var event = regexp.MustCompile(`-(\d+) +\[\d+\] .* (\d+\.\d+): sys_(\w+)(?:\(| -> 0x([0-9a-f]+))`)
