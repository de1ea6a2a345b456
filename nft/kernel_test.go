package nft

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// fakeKernel is the other end of a Conn. It sends what a test prescribes and
// ignores requests.
type fakeKernel struct {
	t  *testing.T
	fd int
}

// newFakeKernel returns a fake kernel and a connection to it.
func newFakeKernel(t *testing.T) (*fakeKernel, *Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(fds[0])
		unix.Close(fds[1])
	})
	return &fakeKernel{t, fds[1]}, &Conn{socket: &nfnetlink.Socket{FD: fds[0]}}
}

// send sends datagrams to the connection.
func (k *fakeKernel) send(datagrams ...[]byte) {
	k.t.Helper()
	for _, d := range datagrams {
		if err := unix.Send(k.fd, d, 0); err != nil {
			k.t.Fatal(err)
		}
	}
}

// kernelMessage returns a message of the kernel that answers message seq.
func kernelMessage(typ, flags uint16, seq uint32, body ...byte) []byte {
	w := nfnetlink.Writer{Seq: seq - 1}
	at := w.Begin(typ, flags, 0, 0)
	w.Buf = append(w.Buf[:nfnetlink.MessageHeaderLen], body...) // without nfgenmsg
	w.End(at)
	w.Pad()
	return w.Buf
}

// ackMessage returns the acknowledgement or refusal of message seq, with
// attributes that explain a refusal.
func ackMessage(seq uint32, errno unix.Errno, attributes func(w *nfnetlink.Writer)) []byte {
	w := nfnetlink.Writer{Buf: append(errnoBytes(errno), make([]byte, nfnetlink.MessageHeaderLen)...)}
	flags := uint16(unix.NLM_F_CAPPED)
	if attributes != nil {
		flags |= unix.NLM_F_ACK_TLVS
		attributes(&w)
	}
	return kernelMessage(unix.NLMSG_ERROR, flags, seq, w.Buf...)
}

// errnoBytes returns an error number as the kernel encodes it.
func errnoBytes(errno unix.Errno) []byte {
	return binary.NativeEndian.AppendUint32(nil, uint32(-int32(errno)))
}
