package nft

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
	"github.com/nftproxy/nftproxy/test/must"
)

// addAddrs adds one row per tag: the addresses from 10.0.0.0.
func addAddrs(b *Batch, tags ...uint32) {
	s := &Set{Name: "addrs", Key: Types(TypeIPv4Addr)}
	for i, tag := range tags {
		b.Tag(tag)
		b.AddRow(Row{Set: s, Key: Tuple{}.Addr(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}))})
	}
}

// twoRows returns a batch with a chain (message 2) and two rows with the tags
// 11 and 12 (message 3).
func twoRows() *Batch {
	b := NewBatch(&Table{Family: IPv4, Name: "lb"})
	b.AddChain(&Chain{Name: "one"})
	addAddrs(b, 11, 12)
	b.finish()
	return b
}

// explainSecondRow writes the attributes of a refusal that identify the
// second row of twoRows.
func explainSecondRow(w *nfnetlink.Writer) {
	_, msg, _ := twoRows().messageOf(3)
	offset := rowsIn(msg)[1].from
	w.CString(unix.NLMSGERR_ATTR_MSG, "explained")
	w.Bytes(unix.NLMSGERR_ATTR_OFFS, binary.NativeEndian.AppendUint32(nil, uint32(offset)))
}

func TestOutcome(t *testing.T) {
	acknowledged, exists := ackMessage(3, 0, nil), ackMessage(2, unix.EEXIST, nil)
	garbage := []byte("this is no netlink message")
	const unknown = "outcome of the transaction is unknown"
	const row = "add element addrs 10.0.0.1: no space left on device: explained"
	tests := []struct {
		name    string
		answers [][]byte
		want    string // "" for success
		is      error
	}{
		{"acknowledged", [][]byte{acknowledged}, "", nil},
		{"no answer", nil, unknown, ErrUnknownOutcome},
		{"another message acknowledged", [][]byte{ackMessage(2, 0, nil)}, unknown, ErrUnknownOutcome},
		{
			"garbage", [][]byte{garbage, acknowledged},
			unknown + ": unexpected netlink message of 26 bytes", ErrUnknownOutcome,
		},
		{"garbage and refused", [][]byte{garbage, exists}, "add chain one: file exists", unix.EEXIST},
		{
			"refused", [][]byte{ackMessage(3, unix.ENOENT, nil)},
			"add element addrs: no such file or directory", unix.ENOENT,
		},
		{"refused and acknowledged", [][]byte{exists, acknowledged}, "add chain one: file exists", unix.EEXIST},
		{"row refused", [][]byte{ackMessage(3, unix.ENOSPC, explainSecondRow)}, row, unix.ENOSPC},
		{
			"two refusals", [][]byte{exists, ackMessage(3, unix.ENOENT, nil)},
			"add chain one: file exists (and 1 more)", unix.ENOENT,
		},
		{
			"no memory for a change", [][]byte{ackMessage(2, unix.ENOBUFS, nil)},
			"add chain one: no buffer space available", unix.ENOBUFS,
		},
		{"transaction refused", [][]byte{ackMessage(1, unix.EPERM, nil)}, "operation not permitted", unix.EPERM},
		{"unknown message refused", [][]byte{ackMessage(99, unix.EINVAL, nil)}, "invalid argument", unix.EINVAL},
		{
			"another generation", [][]byte{ackMessage(1, unix.ERESTART, nil)},
			"ruleset was changed by another program", ErrGeneration,
		},
		{
			"ERESTART of a change", [][]byte{ackMessage(2, unix.ERESTART, nil)},
			"add chain one: interrupted system call should be restarted", unix.ERESTART,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			kernel, c := newFakeKernel(t)
			kernel.send(tt.answers...)
			err := c.outcome(twoRows())
			switch {
			case tt.want == "":
				if err != nil {
					t.Errorf("got %v, want success", err)
				}
			case err == nil || err.Error() != "commit table ip lb: "+tt.want || !errors.Is(err, tt.is),
				errors.Is(err, nfnetlink.ErrLost):
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestOutcomeOfBrokenConnection(t *testing.T) {
	c := &Conn{socket: &nfnetlink.Socket{FD: -1}}
	if err := c.outcome(twoRows()); !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, unix.EBADF) {
		t.Errorf("got %v, want ErrUnknownOutcome and EBADF", err)
	}
}

// A problem has the tag of a row only if the kernel identifies the row.
func TestTagOfRow(t *testing.T) {
	if p := twoRows().problem(nfnetlink.Reply{Seq: 3, Errno: unix.ENOENT}); p.Tag != 0 {
		t.Errorf("unknown row: got tag %d, want 0", p.Tag)
	}
	kernel, c := newFakeKernel(t)
	kernel.send(ackMessage(3, unix.ENOENT, explainSecondRow))
	var refused *CommitError
	if err := c.outcome(twoRows()); !errors.As(err, &refused) || refused.Problems[0].Tag != 12 {
		t.Errorf("second row: got %+v, want a CommitError with tag 12", err)
	}
}

// In an isolated batch the rows of a message have one tag.
func TestIsolatedTags(t *testing.T) {
	b := NewBatch(&Table{Family: IPv4, Name: "lb"})
	b.Isolate()
	addAddrs(b, 1, 1, 2, 3, 3, 1)
	b.finish()
	for i, want := range []uint32{1, 2, 3, 1} {
		if p := b.problem(nfnetlink.Reply{Seq: beginSeq + 1 + uint32(i), Errno: unix.ENOENT}); p.Tag != want {
			t.Errorf("message %d: got tag %d, want %d", i, p.Tag, want)
		}
	}
	b.Reset()
	addAddrs(b, 1, 1, 2, 3, 3, 1)
	if len(b.messages) != 1 {
		t.Errorf("after Reset: got %d messages, want 1", len(b.messages))
	}
}

// If the receive buffer is too small for all answers, the kernel reports
// ENOBUFS once. A refusal that was received still means that nothing was
// applied.
func TestLostAnswers(t *testing.T) {
	table := &Table{Family: IPv4, Name: "lost-answers"}
	tests := []struct {
		name string
		fill func(b *Batch)
		want []error
		not  error
	}{
		{"refused", func(b *Batch) { b.DeleteChain("missing") }, []error{unix.ENOENT}, ErrUnknownOutcome},
		{
			"applied", func(b *Batch) { b.AddChain(&Chain{Name: "c"}) },
			[]error{ErrUnknownOutcome, nfnetlink.ErrLost, unix.ENOBUFS}, unix.ENOENT,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			runtime.LockOSThread() // the namespace ends with the thread
			must.NoError(t, unix.Unshare(unix.CLONE_NEWNET))
			c, err := Open()
			must.NoError(t, err)
			defer c.Close()
			b := NewBatch(table)
			b.AddTable("")
			must.NoError(t, c.Commit(b))
			if err := unix.SetsockoptInt(c.socket.FD, unix.SOL_SOCKET, unix.SO_RCVBUF, 0); err != nil { // the minimum
				t.Fatal(err)
			}
			b.Reset()
			for range 100 {
				tt.fill(b)
			}
			data := b.finish()
			for _, m := range b.messages { // request more acknowledgements than the buffer holds
				flags := data[m.at+nfnetlink.FlagsAt:]
				binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
			}
			must.NoError(t, c.socket.Send(data))
			err = c.outcome(b)
			for _, want := range tt.want {
				if !errors.Is(err, want) || errors.Is(err, tt.not) {
					t.Errorf("got %v, want %v and not %v", err, want, tt.not)
				}
			}
		})
	}
}
