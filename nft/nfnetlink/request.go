package nfnetlink

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// Request sends a message, which requests a dump or an acknowledgement, and
// calls each with the messages of the answer. An error of each ends the
// request. See ErrLost for ENOBUFS.
func (s *Socket) Request(w *Writer, each func(Message) error) error {
	s.Discard()
	s.Seq = w.Seq
	defer s.messages.end()
	if err := s.Send(w.Buf); err != nil {
		return err
	}
	for a := (Answer{Seq: w.Seq}); ; {
		data, err := s.Receive()
		if errors.Is(err, unix.EAGAIN) {
			// Not a matter of time: receiving one piece of a dump makes the
			// kernel prepare the next.
			err = ErrIncomplete
		}
		if err != nil {
			return err
		}
		if err := a.Read(data, each); a.Done || err != nil {
			s.unread = !a.Done
			return err
		}
	}
}

// Answer is the state of an answer that consists of several datagrams.
type Answer struct {
	Seq         uint32 // of the request
	Done        bool   // the end was read
	interrupted bool
}

// Read calls each with the messages in a datagram that answer the request,
// without the message that ends the answer.
func (a *Answer) Read(data []byte, each func(Message) error) error {
	for msg, err := range Messages(data) {
		if err != nil {
			return err
		}
		if msg.Seq() != a.Seq {
			continue // an answer to an earlier request
		}
		a.interrupted = a.interrupted || msg.flags()&unix.NLM_F_DUMP_INTR != 0 // NLMSG_DONE can have it, too
		switch typ := msg.Type(); {
		case typ == unix.NLMSG_DONE, typ == unix.NLMSG_ERROR:
			a.Done = true
			return a.end(msg)
		case typ >= unix.NLMSG_MIN_TYPE:
			if err := each(msg); err != nil {
				return err
			}
		}
	}
	return nil
}

// end returns the error in the last message of an answer.
func (a *Answer) end(msg Message) error {
	if a.interrupted {
		return ErrInterrupted
	}
	if msg.Type() == unix.NLMSG_ERROR {
		r, err := ParseReply(msg)
		if err != nil {
			return err
		}
		return r.Err()
	}
	if len(msg) >= MessageHeaderLen+4 {
		if n := int32(binary.NativeEndian.Uint32(msg[MessageHeaderLen:])); n < 0 {
			return unix.Errno(-n)
		}
	}
	return nil
}
