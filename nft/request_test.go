package nft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// eachMessage calls each with the attributes of the objects in a datagram that
// answers request seq.
func eachMessage(data []byte, seq uint32, each func([]byte)) (done bool, err error) {
	a := nfnetlink.Answer{Seq: seq}
	err = a.Read(data, eachObject(each))
	return a.Done, err
}

func TestEachMessage(t *testing.T) {
	const chain = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWCHAIN
	nfgenmsg := make([]byte, nfnetlink.HeaderLen-nfnetlink.MessageHeaderLen)
	object := kernelMessage(chain, 0, 5, nfgenmsg...)
	interrupted := kernelMessage(chain, unix.NLM_F_DUMP_INTR, 5, nfgenmsg...)
	done := func(flags uint16, seq uint32, errno unix.Errno) []byte {
		return kernelMessage(unix.NLMSG_DONE, flags, seq, errnoBytes(errno)...)
	}
	type datagram = [][]byte
	tests := []struct {
		name    string
		data    datagram
		objects int
		done    bool
		err     error
	}{
		{"empty", nil, 0, false, nil},
		{"objects", datagram{object, object}, 2, false, nil},
		{"objects and end", datagram{object, done(0, 5, 0)}, 1, true, nil},
		{"end without error number", datagram{kernelMessage(unix.NLMSG_DONE, 0, 5)}, 0, true, nil},
		{"end with error", datagram{object, done(0, 5, unix.EMSGSIZE)}, 1, true, unix.EMSGSIZE},
		{"interrupted", datagram{interrupted, done(0, 5, 0)}, 1, true, nfnetlink.ErrInterrupted},
		{
			"interrupted at the end", datagram{object, done(unix.NLM_F_DUMP_INTR, 5, 0)},
			1, true, nfnetlink.ErrInterrupted,
		},
		{"acknowledged", datagram{object, ackMessage(5, 0, nil)}, 1, true, nil},
		{"refused", datagram{ackMessage(5, unix.ENOENT, nil)}, 0, true, unix.ENOENT},
		{"answers to other requests", datagram{
			kernelMessage(chain, unix.NLM_F_DUMP_INTR, 4, nfgenmsg...), done(0, 4, unix.EPERM), object,
		}, 1, false, nil},
		{"other messages", datagram{
			kernelMessage(unix.NLMSG_NOOP, 0, 5, nfgenmsg...), kernelMessage(chain+0x100, 0, 5, nfgenmsg...),
		}, 0, false, nil},
		{"object without header", datagram{kernelMessage(chain, 0, 5)}, 0, false, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			objects := 0
			done, err := eachMessage(bytes.Join(tt.data, nil), 5, func([]byte) { objects++ })
			if objects != tt.objects || done != tt.done || !errors.Is(err, tt.err) {
				t.Errorf("got %d objects, done %v, %v; want %+v", objects, done, err, tt)
			}
		})
	}
	for _, n := range []uint32{0, nfnetlink.MessageHeaderLen - 1, 21, 1 << 31} {
		data := bytes.Clone(object)
		binary.NativeEndian.PutUint32(data, n)
		objects := 0
		done, err := eachMessage(data, 5, func([]byte) { objects++ })
		if objects != 0 || done || err == nil {
			t.Errorf("message of length %d: got %d objects, done %v, %v; want an error", n, objects, done, err)
		}
	}
}

// An answer without its end is an error, not an empty answer.
func TestIncompleteAnswers(t *testing.T) {
	_, c := newFakeKernel(t)
	table := &Table{Family: IPv4, Name: "t"}
	_, errGeneration := c.Generation()
	_, errChains := c.Chains(table)
	_, _, errTable := c.FindTable(table)
	for name, err := range map[string]error{
		"Generation": errGeneration, "Chains": errChains, "FindTable": errTable,
	} {
		if !errors.Is(err, nfnetlink.ErrIncomplete) {
			t.Errorf("%s: got %v, want %v", name, err, nfnetlink.ErrIncomplete)
		}
	}
}

// Objects that are read twice belong to several generations.
func TestReadTwice(t *testing.T) {
	kernel, c := newFakeKernel(t)
	const chain = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWCHAIN
	w := nfnetlink.Writer{Buf: make([]byte, nfnetlink.HeaderLen-nfnetlink.MessageHeaderLen)}
	w.CString(unix.NFTA_CHAIN_TABLE, "t")
	w.Bytes(unix.NFTA_CHAIN_HANDLE, binary.BigEndian.AppendUint64(nil, 7))
	object := kernelMessage(chain, unix.NLM_F_MULTI, 1, w.Buf...)
	kernel.send(object, object, kernelMessage(unix.NLMSG_DONE, unix.NLM_F_MULTI, 1, errnoBytes(0)...))
	reads := 0
	err := c.dumpOnce(kindChain, &Table{Family: IPv4, Name: "t"}, "", func([]byte) { reads++ })
	if reads != 2 || !errors.Is(err, ErrGeneration) {
		t.Errorf("got %d objects, %v; want 2, %v", reads, err, ErrGeneration)
	}
}

func TestParseReply(t *testing.T) {
	attributes := func(w *nfnetlink.Writer) {
		w.CString(unix.NLMSGERR_ATTR_MSG, "explained")
		w.Bytes(unix.NLMSGERR_ATTR_OFFS, binary.NativeEndian.AppendUint32(nil, 36))
	}
	whole := ackMessage(7, unix.ENOENT, attributes)
	binary.NativeEndian.PutUint16(whole[nfnetlink.FlagsAt:], unix.NLM_F_ACK_TLVS) // not capped
	explained := nfnetlink.Reply{Seq: 7, Errno: unix.ENOENT, Message: "explained", Offset: 36}
	tests := []struct {
		name string
		msg  []byte
		want nfnetlink.Reply
	}{
		{"acknowledged", ackMessage(7, 0, nil), nfnetlink.Reply{Seq: 7}},
		{"refused", ackMessage(7, unix.ENOENT, nil), nfnetlink.Reply{Seq: 7, Errno: unix.ENOENT}},
		{"explained", ackMessage(7, unix.ENOENT, attributes), explained},
		{"with the whole message", whole, nfnetlink.Reply{Seq: 7, Errno: unix.ENOENT}},
	}
	for _, tt := range tests {
		if got, err := nfnetlink.ParseReply(tt.msg); got != tt.want || err != nil {
			t.Errorf("%s: got %+v, %v; want %+v", tt.name, got, err, tt.want)
		}
	}
	done := kernelMessage(unix.NLMSG_DONE, 0, 7, make([]byte, 4)...)
	for _, msg := range [][]byte{nil, ackMessage(7, 0, nil)[:19], done} {
		if r, err := nfnetlink.ParseReply(msg); err == nil {
			t.Errorf("%x: got %+v, want an error", msg, r)
		}
	}
}
