package nft

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// answer writes messages as the kernel does in answer to request 5.
type answer struct{ messageWriter }

func (a *answer) message(typ, flags uint16, seq uint32, body ...byte) {
	a.seq = seq - 1
	at := a.begin(typ, flags, 0, 0)
	a.buf = append(a.buf[:at+nlmsgHeaderLen], body...)
	a.end(at)
	a.pad()
}

func TestEachMessage(t *testing.T) {
	const object = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWCHAIN
	nfgenmsg := make([]byte, nfgenmsgLen)
	done := func(errno unix.Errno) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(-int32(errno))) }
	tests := []struct {
		name    string
		write   func(a *answer)
		objects int
		done    bool
		err     error
	}{
		{"nothing", func(a *answer) {}, 0, false, nil},
		{"objects", func(a *answer) { a.message(object, 0, 5, nfgenmsg...); a.message(object, 0, 5, nfgenmsg...) }, 2, false, nil},
		{"objects and end", func(a *answer) { a.message(object, 0, 5, nfgenmsg...); a.message(unix.NLMSG_DONE, 0, 5, done(0)...) }, 1, true, nil},
		{"end without an error number", func(a *answer) { a.message(unix.NLMSG_DONE, 0, 5) }, 0, true, nil},
		{"end with an error", func(a *answer) {
			a.message(object, 0, 5, nfgenmsg...)
			a.message(unix.NLMSG_DONE, 0, 5, done(unix.EMSGSIZE)...)
		}, 1, true, unix.EMSGSIZE},
		{"changed meanwhile", func(a *answer) { a.message(object, unix.NLM_F_DUMP_INTR, 5, nfgenmsg...) }, 0, true, ErrGeneration},
		{"changed before the end", func(a *answer) {
			a.message(object, 0, 5, nfgenmsg...)
			a.message(unix.NLMSG_DONE, unix.NLM_F_DUMP_INTR, 5, done(0)...)
		}, 1, true, ErrGeneration},
		{"acknowledged", func(a *answer) {
			a.message(object, 0, 5, nfgenmsg...)
			a.message(unix.NLMSG_ERROR, 0, 5, make([]byte, 20)...)
		}, 1, true, nil},
		{"refused", func(a *answer) { a.message(unix.NLMSG_ERROR, 0, 5, append(done(unix.ENOENT), make([]byte, 16)...)...) }, 0, true, unix.ENOENT},
		{"answers to others", func(a *answer) {
			a.message(object, unix.NLM_F_DUMP_INTR, 4, nfgenmsg...)
			a.message(unix.NLMSG_DONE, 0, 4, done(unix.EPERM)...)
			a.message(object, 0, 5, nfgenmsg...)
		}, 1, false, nil},
		{"other kinds of message", func(a *answer) {
			a.message(unix.NLMSG_NOOP, 0, 5, nfgenmsg...)
			a.message(object+0x100, 0, 5, nfgenmsg...)
		}, 0, false, nil},
		{"object without a header", func(a *answer) { a.message(object, 0, 5) }, 0, false, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var a answer
			tt.write(&a)
			objects := 0
			done, err := eachMessage(a.buf, 5, func([]byte) { objects++ })
			if objects != tt.objects || done != tt.done || !errors.Is(err, tt.err) {
				t.Errorf("%d objects, done %v, %v; want %d, %v, %v", objects, done, err, tt.objects, tt.done, tt.err)
			}
		})
	}
	for _, n := range []uint32{0, nlmsgHeaderLen - 1, 21, 1 << 31} {
		var a answer
		a.message(object, 0, 5, nfgenmsg...)
		binary.NativeEndian.PutUint32(a.buf, n)
		if done, err := eachMessage(a.buf, 5, func([]byte) { t.Errorf("a message of length %d counts", n) }); !done || err == nil {
			t.Errorf("a message of length %d is no error", n)
		}
	}
}

// An answer that does not come, or not to its end, is no empty answer.
func TestIncompleteAnswers(t *testing.T) {
	c, _ := newPair(t)
	if _, err := c.Generation(); !errors.Is(err, errIncomplete) {
		t.Errorf("generation: %v", err)
	}
	if _, err := c.Chains(&Table{Family: IPv4, Name: "t"}); !errors.Is(err, errIncomplete) {
		t.Errorf("chains: %v", err)
	}
	if _, _, err := c.FindTable(&Table{Family: IPv4, Name: "t"}); !errors.Is(err, errIncomplete) {
		t.Errorf("table: %v", err)
	}
}

func TestParseReply(t *testing.T) {
	attributes := func(w *messageWriter) {
		w.string(unix.NLMSGERR_ATTR_MSG, "explained")
		w.bytes(unix.NLMSGERR_ATTR_OFFS, binary.NativeEndian.AppendUint32(nil, 36))
	}
	whole := ackMessage(7, unix.ENOENT, attributes)
	binary.NativeEndian.PutUint16(whole[6:], unix.NLM_F_ACK_TLVS) // the refused message is repeated as a whole, which is its header
	binary.NativeEndian.PutUint32(whole[nlmsgHeaderLen+4:], nlmsgHeaderLen)
	tooLong := append([]byte(nil), whole...)
	binary.NativeEndian.PutUint32(tooLong[nlmsgHeaderLen+4:], 1000)
	tests := []struct {
		name string
		msg  []byte
		want reply
	}{
		{"acknowledged", ackMessage(7, 0, nil), reply{seq: 7}},
		{"refused", ackMessage(7, unix.ENOENT, nil), reply{seq: 7, errno: unix.ENOENT}},
		{"explained", ackMessage(7, unix.ENOENT, attributes), reply{7, unix.ENOENT, "explained", 36}},
		{"explained after the message", whole, reply{7, unix.ENOENT, "explained", 36}},
		{"message longer than the answer", tooLong, reply{seq: 7, errno: unix.ENOENT}},
	}
	for _, tt := range tests {
		if got, err := parseReply(tt.msg); got != tt.want || err != nil {
			t.Errorf("%s: %+v, %v; want %+v", tt.name, got, err, tt.want)
		}
	}
	for _, msg := range [][]byte{nil, ackMessage(7, 0, nil)[:19], {20, 0, 0, 0, 3, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}} {
		if r, err := parseReply(msg); err == nil {
			t.Errorf("%x is %+v", msg, r)
		}
	}
}
