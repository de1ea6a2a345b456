package conntrack

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// answers replace the kernel for answers that real kernels rarely send. Each
// answers a request on a socket. It is called with the sequence number of the
// request, which counts from 1.
type answers []func(seq uint32) []byte

func (a answers) socket(t *testing.T) *nfnetlink.Socket {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(fds[0])
		unix.Close(fds[1])
	})
	for i, answer := range a {
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

// dumped returns a dump of one flow. Its messages have the given flags.
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

// A pass repeats a dump that was interrupted or overrun, up to three dumps, and
// a dump without filters replaces one that the kernel refuses. Other errors end
// the dump.
func TestDumpAnswers(t *testing.T) {
	complete, interrupted, overrun := dumped(0), dumped(unix.NLM_F_DUMP_INTR), ended(-int32(unix.ENOBUFS))
	vip, both := []string{"10.96.0.10:53"}, []string{"10.96.0.10:53", "[fd96::10]:53"}
	for name, tc := range map[string]struct {
		answers      answers
		changed      []string
		dumps, flows int
		want         error
	}{
		"complete":             {answers{complete}, vip, 1, 1, nil},
		"interrupted":          {answers{interrupted, complete}, vip, 2, 2, nil},
		"overrun":              {answers{overrun, complete}, vip, 2, 1, nil},
		"both":                 {answers{overrun, interrupted, complete}, vip, 3, 2, nil},
		"always interrupted":   {slices.Repeat(answers{interrupted}, 4), vip, 3, 3, nfnetlink.ErrInterrupted},
		"refused":              {answers{refused(unix.EINVAL), complete}, vip, 1, 1, nil},
		"not supported":        {answers{refused(unix.EOPNOTSUPP), complete}, vip, 1, 1, nil},
		"refused twice":        {slices.Repeat(answers{refused(unix.EINVAL)}, 2), vip, 1, 0, unix.EINVAL},
		"not permitted":        {answers{refused(unix.EPERM), complete}, vip, 1, 0, unix.EPERM},
		"no memory at the end": {answers{ended(-int32(unix.ENOMEM))}, vip, 1, 0, unix.ENOMEM},
		"without an end": {answers{func(uint32) []byte { return []byte{1, 0, 0, 0} }}, vip, 1, 0,
			nfnetlink.ErrIncomplete},
		"the next dump after an error": {answers{refused(unix.EPERM), complete}, both, 2, 1, unix.EPERM},
	} {
		t.Run(name, func(t *testing.T) {
			count := func(seq uint32) []byte {
				b := message(messageGetStats, 0, seq, func(w *nfnetlink.Writer) { w.Uint32(ctaStatsGlobalEntries, 1) })
				return append(b, result(unix.NLMSG_ERROR, 0)(seq)...)
			}
			c := &Conn{dumps: tc.answers.socket(t), calls: answers{count}.socket(t)}
			f := newFrontends()
			for _, vip := range tc.changed {
				f.Update(change(vip, "10.244.0.5:53"))
			}
			todo := f.take()
			got, err := c.clean(t.Context(), f, &todo)
			if want := (Stats{Dumps: tc.dumps, Flows: tc.flows}); got != want || !errors.Is(err, tc.want) {
				t.Errorf("got %+v, %v, want %+v, %v", got, err, want, tc.want)
			}
		})
	}
}

// The deletion of a flow that no longer exists succeeds. An answer to an
// earlier batch is ignored, and the error of a batch is one line.
func TestDeletionAnswers(t *testing.T) {
	mixed := func(seq uint32) []byte {
		return slices.Concat(result(unix.NLMSG_ERROR, 0)(seq-1), refused(unix.ENOENT)(seq), refused(unix.EPERM)(seq+2),
			result(unix.NLMSG_ERROR, 0)(seq+3))
	}
	all := func(seq uint32) (b []byte) {
		for i := range uint32(4) {
			b = append(b, refused(unix.EPERM)(seq+i)...)
		}
		return b
	}
	for want, answer := range map[int]func(uint32) []byte{2: mixed, 0: all} {
		c := &Conn{calls: answers{answer}.socket(t)}
		n, err := c.deleteFlows(manyFlows(4)...)
		if n != want || !errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOENT) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("got %d deleted flows, %v, want %d and one line, %v", n, err, want, unix.EPERM)
		}
	}
}

// After a failed lookup, a pass does not look up further addresses, and its
// error does not grow.
func TestLocalAddrsStopAfterError(t *testing.T) {
	routes := slices.Repeat(answers{refused(unix.ENOBUFS)}, 50).socket(t)
	l := localAddrs{conn: &Conn{routes: routes}, known: map[netip.Addr]bool{addr("192.0.2.1"): true}}
	for i := range 50 {
		if got := l.contains(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})); got != (i == 1) {
			t.Errorf("192.0.2.%d: got local %v, want %v", i, got, i == 1)
		}
	}
	if lookups := routes.Seq; lookups != 1 || !errors.Is(l.err, unix.ENOBUFS) {
		t.Errorf("got %d lookups, %v, want 1, %v", routes.Seq, l.err, unix.ENOBUFS)
	}
}
