package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// script replaces the kernel for answers that real kernels rarely send. It
// answers each request on a socket with its next function, which is called
// with the sequence number of the request.
type script []func(seq uint32) []byte

func (s script) socket(t *testing.T) *socket {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours := &socket{fd: fds[0], buf: make([]byte, receiveLen)}
	kernel := &socket{fd: fds[1], buf: make([]byte, receiveLen)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, answer := range s {
			request, err := kernel.receive()
			if err != nil || len(request) == 0 {
				return
			}
			if err := kernel.send(answer(binary.NativeEndian.Uint32(request[8:]))); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		ours.close()
		<-done
		kernel.close()
	})
	return ours
}

// conn returns a connection whose dumps the script answers.
func (s script) conn(t *testing.T, entries uint32) *Conn {
	count := func(seq uint32) []byte {
		b := appendMessage(nil, header{Type: messageGetStats, Seq: seq}, 0)
		return endMessage(appendUint32(b, ctaStatsGlobalEntries, entries), 0)
	}
	return &Conn{dumps: s.socket(t), calls: script{count}.socket(t)}
}

// dumped returns a dump of one flow that is not stale. Its messages have the
// given flags.
func dumped(flags uint16) func(seq uint32) []byte {
	return func(seq uint32) []byte {
		flow := newFlow(udp, "10.0.0.1:4000", "10.96.0.10:53", "10.244.0.5:53")
		b := appendMessage(nil, header{Type: messageNew, Flags: flags, Seq: seq}, IPv4)
		b = endMessage(appendFlow(b, flow), 0)
		return append(b, ended(0)(seq)...)
	}
}

// ended returns the end of a dump.
func ended(code int32) func(seq uint32) []byte { return result(unix.NLMSG_DONE, code) }

// refused returns the answer to a request that the kernel refuses.
func refused(errno unix.Errno) func(seq uint32) []byte {
	return result(unix.NLMSG_ERROR, -int32(errno))
}

func result(kind uint16, code int32) func(seq uint32) []byte {
	return func(seq uint32) []byte {
		b := make([]byte, headerLen+4)
		binary.NativeEndian.PutUint32(b, uint32(len(b)))
		binary.NativeEndian.PutUint16(b[4:], kind)
		binary.NativeEndian.PutUint32(b[8:], seq)
		binary.NativeEndian.PutUint32(b[16:], uint32(code))
		return b
	}
}

func TestListFlowsAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		script script
		flows  int
		want   error
	}{
		"complete":             {script{dumped(0)}, 1, nil},
		"interrupted":          {script{dumped(unix.NLM_F_DUMP_INTR)}, 1, errInterrupted},
		"refused":              {script{refused(unix.EINVAL), dumped(0)}, 1, nil},
		"not supported":        {script{refused(unix.EOPNOTSUPP), dumped(0)}, 1, nil},
		"refused twice":        {script{refused(unix.EINVAL), refused(unix.EINVAL)}, 0, unix.EINVAL},
		"not permitted":        {script{refused(unix.EPERM)}, 0, unix.EPERM},
		"no memory at the end": {script{ended(-int32(unix.ENOMEM))}, 0, unix.ENOMEM},
		"truncated":            {script{func(uint32) []byte { return []byte{1, 0, 0, 0} }}, 0, errTruncated},
	} {
		t.Run(name, func(t *testing.T) {
			flows := 0
			var got error
			for _, err := range tc.script.conn(t, 0).listFlows(dumpFilter{family: IPv4, protocol: udp}) {
				if err != nil {
					got = err
				} else {
					flows++
				}
			}
			if flows != tc.flows || !errors.Is(got, tc.want) {
				t.Errorf("got %d flows, %v, want %d, %v", flows, got, tc.flows, tc.want)
			}
		})
	}
}

func TestCleanRepeatsInterruptedDumps(t *testing.T) {
	interrupted, overrun, complete := dumped(unix.NLM_F_DUMP_INTR), ended(-int32(unix.ENOBUFS)), dumped(0)
	for name, tc := range map[string]struct {
		script script
		dumps  int
		want   error
	}{
		"once":          {script{interrupted, complete}, 2, nil},
		"overrun":       {script{overrun, complete}, 2, nil},
		"both":          {script{overrun, interrupted, complete}, 3, nil},
		"always":        {script{interrupted, interrupted, interrupted, complete}, 3, errInterrupted},
		"not permitted": {script{refused(unix.EPERM), complete}, 1, unix.EPERM},
	} {
		t.Run(name, func(t *testing.T) {
			c := tc.script.conn(t, 1)
			stats, err := cleanChanges(context.Background(), c, change("10.96.0.10:53", "10.244.0.5:53"))
			if stats.Dumps != tc.dumps || !errors.Is(err, tc.want) {
				t.Errorf("got %+v, %v, want %d dumps, %v", stats, err, tc.dumps, tc.want)
			}
		})
	}
}

// After a dump that fails, the pass makes the next dump.
func TestCleanContinuesAfterError(t *testing.T) {
	c := script{refused(unix.EPERM), dumped(0)}.conn(t, 1)
	changes := []Change{change("10.96.0.10:53", "10.244.0.5:53"), change("[fd96::10]:53")}
	stats, err := cleanChanges(context.Background(), c, changes...)
	if want := (Stats{Dumps: 2, Flows: 1}); stats != want || !errors.Is(err, unix.EPERM) {
		t.Errorf("got %+v, %v, want %+v, %v", stats, err, want, unix.EPERM)
	}
}

func TestDeleteFlowsAnswers(t *testing.T) {
	flows := manyFlows(4)
	answers := func(seq uint32) []byte { // seq belongs to the first deletion
		b := result(unix.NLMSG_ERROR, 0)(seq - 1) // to a previous batch
		b = append(b, refused(unix.ENOENT)(seq)...)
		b = append(b, refused(unix.EPERM)(seq+2)...)
		return append(b, result(unix.NLMSG_ERROR, 0)(seq+3)...)
	}
	c := &Conn{calls: script{answers}.socket(t)}
	if n, err := c.deleteFlows(flows...); n != 2 || !errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOENT) {
		t.Errorf("got %d deleted flows, %v, want 2, %v", n, err, unix.EPERM)
	}
}

// If all deletions of a batch fail, the error is one line.
func TestDeleteFlowsError(t *testing.T) {
	flows := manyFlows(deleteBatch)
	answers := func(seq uint32) (b []byte) {
		for i := range uint32(len(flows)) {
			b = append(b, refused(unix.EPERM)(seq+i)...)
		}
		return b
	}
	c := &Conn{calls: script{answers}.socket(t)}
	n, err := c.deleteFlows(flows...)
	if n != 0 || !errors.Is(err, unix.EPERM) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %d deleted flows, %v, want 0 and one line, %v", n, err, unix.EPERM)
	}
}

// A signal does not end the wait for an answer.
func TestReceiveAfterSignal(t *testing.T) {
	c := newNamespace(t).open(t)
	thread := make(chan int)
	received := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		thread <- unix.Gettid()
		_, err := c.calls.receive()
		received <- err
	}()
	tid := <-thread
	for range 50 {
		if err := unix.Tgkill(unix.Getpid(), tid, unix.SIGURG); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	b := appendMessage(nil, header{Type: messageGetStats, Flags: unix.NLM_F_REQUEST, Seq: 1}, 0)
	if err := c.calls.send(endMessage(b, 0)); err != nil {
		t.Fatal(err)
	}
	if err := <-received; err != nil {
		t.Errorf("got %v, want no error", err)
	}
}
