package conntrack

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// script replaces the kernel for answers that real kernels rarely send. Its
// functions return the answers to the requests on a socket. They are called
// with the sequence number of the request, which counts from 1.
type script []func(seq uint32) []byte

func (s script) socket(t *testing.T) *nfnetlink.Socket {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(fds[0])
		unix.Close(fds[1])
	})
	for i, answer := range s {
		if err := unix.Send(fds[1], answer(uint32(i+1)), 0); err != nil {
			t.Fatal(err)
		}
	}
	return &nfnetlink.Socket{FD: fds[0]}
}

// message returns a message of the kernel that answers request seq.
func message(kind, flags uint16, seq uint32, body func(*nfnetlink.Writer)) []byte {
	w := nfnetlink.Writer{Seq: seq - 1}
	at := w.Begin(kind, flags, IPv4, 0)
	body(&w)
	w.End(at)
	return w.Buf
}

// conn returns a connection whose dumps the script answers.
func (s script) conn(t *testing.T, entries uint32) *Conn {
	count := func(seq uint32) []byte {
		b := message(messageGetStats, 0, seq, func(w *nfnetlink.Writer) { w.Uint32(ctaStatsGlobalEntries, entries) })
		return append(b, result(unix.NLMSG_ERROR, 0)(seq)...)
	}
	return &Conn{dumps: s.socket(t), calls: script{count}.socket(t)}
}

// dumped returns a dump of one flow that is not stale. Its messages have the
// given flags.
func dumped(flags uint16) func(seq uint32) []byte {
	return func(seq uint32) []byte {
		flow := newFlow(udp, "10.0.0.1:4000", "10.96.0.10:53", "10.244.0.5:53")
		b := message(messageNew, flags, seq, func(w *nfnetlink.Writer) { writeFlow(w, flow) })
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
		b := make([]byte, nfnetlink.MessageHeaderLen+4)
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
		"interrupted":          {script{dumped(unix.NLM_F_DUMP_INTR)}, 1, nfnetlink.ErrInterrupted},
		"refused":              {script{refused(unix.EINVAL), dumped(0)}, 1, nil},
		"not supported":        {script{refused(unix.EOPNOTSUPP), dumped(0)}, 1, nil},
		"refused twice":        {script{refused(unix.EINVAL), refused(unix.EINVAL)}, 0, unix.EINVAL},
		"not permitted":        {script{refused(unix.EPERM)}, 0, unix.EPERM},
		"no memory at the end": {script{ended(-int32(unix.ENOMEM))}, 0, unix.ENOMEM},
		"without an end":       {script{func(uint32) []byte { return []byte{1, 0, 0, 0} }}, 0, nfnetlink.ErrIncomplete},
	} {
		t.Run(name, func(t *testing.T) {
			flows := 0
			var got error
			for _, err := range tc.script.conn(t, 0).listFlows(Selection{Family: IPv4, Protocol: udp}) {
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
		"always":        {script{interrupted, interrupted, interrupted, complete}, 3, nfnetlink.ErrInterrupted},
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
	changes := []FrontendChange{change("10.96.0.10:53", "10.244.0.5:53"), change("[fd96::10]:53")}
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
