package nft

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// newPair returns a connection, and the end of it that plays the kernel.
func newPair(t *testing.T) (c *Conn, kernel int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(fds[0])
		unix.Close(fds[1])
	})
	return &Conn{fd: fds[0], recv: make([]byte, receiveSize)}, fds[1]
}

// ackMessage returns what the kernel answers to message seq, with attributes about an error.
func ackMessage(seq uint32, errno unix.Errno, attributes func(w *messageWriter)) []byte {
	w := messageWriter{seq: seq - 1}
	at := w.begin(unix.NLMSG_ERROR, unix.NLM_F_CAPPED, 0, 0)
	w.buf = w.buf[:nlmsgHeaderLen] // no nfgenmsg
	w.buf = binary.NativeEndian.AppendUint32(w.buf, uint32(-int32(errno)))
	w.buf = append(w.buf, make([]byte, nlmsgHeaderLen)...)
	if attributes != nil {
		binary.NativeEndian.PutUint16(w.buf[6:], unix.NLM_F_CAPPED|unix.NLM_F_ACK_TLVS)
		attributes(&w)
	}
	w.end(at)
	return w.buf
}

// twoRows is a batch with a chain (message 2) and, in one message (3), two rows with tags 11 and 12.
func twoRows() *Batch {
	b := NewBatch(&Table{Family: IPv4, Name: "lb"})
	b.AddChain(&Chain{Name: "one"})
	s := &Set{Name: "addrs", Key: Types(TypeIPv4Addr)}
	for i := range byte(2) {
		b.Tag(11 + uint32(i))
		b.AddRow(Row{Set: s, Key: Tuple{}.Addr(netip.AddrFrom4([4]byte{10, 0, 0, i}))})
	}
	b.finish()
	return b
}

// secondRow is the offset of the second row in its message.
func secondRow(b *Batch) func(w *messageWriter) {
	_, msg, _ := b.messageOf(3)
	at := rowsIn(msg)[1].from
	return func(w *messageWriter) {
		w.string(unix.NLMSGERR_ATTR_MSG, "explained")
		w.bytes(unix.NLMSGERR_ATTR_OFFS, binary.NativeEndian.AppendUint32(nil, uint32(at)))
	}
}

func TestOutcome(t *testing.T) {
	b := twoRows()
	acknowledged := ackMessage(3, 0, nil)
	garbage := []byte("this is no netlink message")
	tests := []struct {
		name    string
		answers [][]byte
		want    string // "" for success
		is      error
	}{
		{"acknowledged", [][]byte{acknowledged}, "", nil},
		{"no answer", nil, "outcome of the transaction is unknown", ErrUnknownOutcome},
		{"another message acknowledged", [][]byte{ackMessage(2, 0, nil)}, "outcome of the transaction is unknown", ErrUnknownOutcome},
		{"garbage", [][]byte{garbage, acknowledged}, "outcome of the transaction is unknown: unexpected netlink message of 26 bytes", ErrUnknownOutcome},
		{"garbage and refused", [][]byte{garbage, ackMessage(2, unix.EEXIST, nil)}, "add chain one: file exists", unix.EEXIST},
		{"refused", [][]byte{ackMessage(3, unix.ENOENT, nil)}, "add element addrs: no such file or directory", unix.ENOENT},
		{"refused and acknowledged", [][]byte{ackMessage(2, unix.EEXIST, nil), acknowledged}, "add chain one: file exists", unix.EEXIST},
		{"a row refused", [][]byte{ackMessage(3, unix.ENOSPC, secondRow(b))}, "add element addrs 10.0.0.1: no space left on device: explained", unix.ENOSPC},
		{"twice refused", [][]byte{ackMessage(2, unix.EEXIST, nil), ackMessage(3, unix.ENOENT, nil)}, "add chain one: file exists (and 1 more)", unix.ENOENT},
		{"refused as a whole", [][]byte{ackMessage(1, unix.EPERM, nil)}, "operation not permitted", unix.EPERM},
		{"unknown message refused", [][]byte{ackMessage(99, unix.EINVAL, nil)}, "invalid argument", unix.EINVAL},
		{"other generation", [][]byte{ackMessage(1, unix.ERESTART, nil)}, "ruleset was changed by another program", ErrGeneration},
		{"ERESTART of a message", [][]byte{ackMessage(2, unix.ERESTART, nil)}, "add chain one: interrupted system call should be restarted", unix.ERESTART},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, kernel := newPair(t)
			for _, a := range tt.answers {
				if err := unix.Send(kernel, a, 0); err != nil {
					t.Fatal(err)
				}
			}
			err := c.outcome(b)
			switch {
			case tt.want == "":
				if err != nil {
					t.Error(err)
				}
			case err == nil || err.Error() != "commit table ip lb: "+tt.want || !errors.Is(err, tt.is):
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
	t.Run("tags", func(t *testing.T) {
		if p := b.problem(reply{seq: 3, errno: unix.ENOENT}); p.Tag != 0 {
			t.Errorf("one of two rows is refused, and the tag is %d", p.Tag)
		}
		c, kernel := newPair(t)
		unix.Send(kernel, ackMessage(3, unix.ENOENT, secondRow(b)), 0)
		var refused *CommitError
		if err := c.outcome(b); !errors.As(err, &refused) || refused.Problems[0].Tag != 12 {
			t.Errorf("the second row is refused: %+v", err)
		}
	})
	t.Run("connection broken", func(t *testing.T) {
		c := &Conn{fd: -1, recv: make([]byte, receiveSize)}
		if err := c.outcome(b); !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, unix.EBADF) {
			t.Error(err)
		}
	})
}

// Isolated, a message of rows has one tag, which is known without the row.
func TestIsolatedTags(t *testing.T) {
	b := NewBatch(&Table{Family: IPv4, Name: "lb"})
	b.Isolate()
	s := &Set{Name: "addrs", Key: Types(TypeIPv4Addr)}
	tags := []uint32{1, 1, 2, 3, 3, 1}
	for i, tag := range tags {
		b.Tag(tag)
		b.AddRow(Row{Set: s, Key: Tuple{}.Addr(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))})
	}
	b.finish()
	for i, want := range []uint32{1, 2, 3, 1} {
		if p := b.problem(reply{seq: beginSeq + 1 + uint32(i), errno: unix.ENOENT}); p.Tag != want {
			t.Errorf("message %d has tag %d, want %d", i, p.Tag, want)
		}
	}
	b.Reset()
	for i, tag := range tags {
		b.Tag(tag)
		b.AddRow(Row{Set: s, Key: Tuple{}.Addr(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))})
	}
	if len(b.messages) != 1 {
		t.Errorf("%d messages after Reset, want 1", len(b.messages))
	}
}

// What comes back where the receive buffer is too small for all answers: the kernel says ENOBUFS, once.
func TestLostAnswers(t *testing.T) {
	table := &Table{Family: IPv4, Name: "lost-answers"}
	tests := []struct {
		name string
		fill func(b *Batch, i int)
		want error
		not  error
	}{
		// Errors that got through tell that nothing was carried out, even if others were lost.
		{"refused", func(b *Batch, i int) { b.DeleteChain("missing") }, unix.ENOENT, ErrUnknownOutcome},
		{"carried out", func(b *Batch, i int) { b.AddChain(&Chain{Name: "c"}) }, ErrUnknownOutcome, unix.ENOENT},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Open()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			b := NewBatch(table)
			b.AddTable("")
			if err := c.Commit(b); err != nil {
				t.Fatal(err)
			}
			defer func() {
				b.Reset()
				b.DeleteTable()
				c.discard()
				if err := c.Commit(b); err != nil {
					t.Error(err)
				}
			}()
			if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0); err != nil { // the least that there is
				t.Fatal(err)
			}
			b.Reset()
			for i := range 100 {
				tt.fill(b, i)
			}
			data := b.finish()
			for _, m := range b.messages { // ask for more acknowledgements than there is room for
				flags := binary.NativeEndian.Uint16(data[m.at+6:])
				binary.NativeEndian.PutUint16(data[m.at+6:], flags|unix.NLM_F_ACK)
			}
			if err := c.send(data); err != nil {
				t.Fatal(err)
			}
			err = c.outcome(b)
			if !errors.Is(err, tt.want) || errors.Is(err, tt.not) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if tt.want == ErrUnknownOutcome && !errors.Is(err, unix.ENOBUFS) {
				t.Errorf("%v does not say why", err)
			}
		})
	}
}

// A transaction is not sent in part.
func TestTooLargeToSend(t *testing.T) {
	c, _ := newPair(t)
	c.sendBuf = 1 << 30 // so that the buffer stays as small as it is
	b := NewBatch(&Table{Family: IPv4, Name: "lb"})
	s := &Set{Name: "addrs", Key: Types(TypeIPv4Addr)}
	for b.Len() < 16<<20 {
		b.AddRow(Row{Set: s, Key: Tuple{}.Addr(netip.AddrFrom4([4]byte{10}))})
	}
	err := c.Commit(b)
	if !errors.Is(err, unix.EMSGSIZE) || errors.Is(err, ErrUnknownOutcome) {
		t.Error(err)
	}
}
