package nfnetlink

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"golang.org/x/sys/unix"
)

// logLevel is the level at which a Socket logs messages with slog.Default. It
// is verbosity 10 of klog.
const logLevel = slog.Level(-10)

// maxLogged is the number of messages of a request, and of its answer, that are
// logged: a transaction can have 100,000.
const maxLogged = 50

// messageLog counts the messages of a request or an answer that were logged.
type messageLog struct {
	logged, omitted int
}

// end logs the number of omitted messages, and starts the next request or
// answer.
func (l *messageLog) end() {
	if l.omitted > 0 {
		slog.Log(context.Background(), logLevel, "Omitted further netlink messages", "count", l.omitted)
	}
	*l = messageLog{}
}

// log logs the messages in a datagram, one per line.
func (s *Socket) log(direction string, data []byte) {
	logger := slog.Default()
	if !logger.Enabled(context.Background(), logLevel) {
		return
	}
	for msg, err := range Messages(data) {
		switch {
		case err != nil:
			logger.Log(context.Background(), logLevel, direction, "err", err)
		case s.messages.logged == maxLogged:
			s.messages.omitted++
		default:
			s.messages.logged++
			logger.LogAttrs(context.Background(), logLevel, direction, s.describe(msg)...)
		}
	}
}

// describe returns the header of a message, the error in it, and what
// Socket.Describe returns.
func (s *Socket) describe(msg Message) (attrs []slog.Attr) {
	name, flags := typeNames[msg.Type()], msg.flags()
	switch reply, err := ParseReply(msg); {
	case err == nil:
		flags &^= unix.NLM_F_CAPPED | unix.NLM_F_ACK_TLVS // which have the values of NLM_F_DUMP
		if err := reply.Err(); err != nil {
			attrs = []slog.Attr{slog.String("err", err.Error()), slog.Uint64("offset", uint64(reply.Offset))}
		}
	case name == "" && s.Describe != nil:
		name, attrs = s.Describe(msg)
	}
	if name == "" {
		name = fmt.Sprintf("%#04x", msg.Type())
	}
	return append([]slog.Attr{
		slog.String("type", name), slog.String("flags", flagsText(flags)),
		slog.Uint64("seq", uint64(msg.Seq())), slog.Int("length", len(msg)),
	}, attrs...)
}

// typeNames are the types of messages that all netlink protocols, or all
// subsystems of nfnetlink, have.
var typeNames = map[uint16]string{
	unix.NLMSG_NOOP: "NLMSG_NOOP", unix.NLMSG_ERROR: "NLMSG_ERROR", unix.NLMSG_DONE: "NLMSG_DONE",
	unix.NFNL_MSG_BATCH_BEGIN: "NFNL_MSG_BATCH_BEGIN", unix.NFNL_MSG_BATCH_END: "NFNL_MSG_BATCH_END",
}

// flagsText returns the flags of a message, such as REQUEST|ACK.
func flagsText(flags uint16) string {
	var names []string
	for _, f := range []struct {
		bits uint16
		name string
	}{
		{unix.NLM_F_REQUEST, "REQUEST"}, {unix.NLM_F_MULTI, "MULTI"}, {unix.NLM_F_ACK, "ACK"},
		{unix.NLM_F_DUMP_INTR, "DUMP_INTR"}, {unix.NLM_F_DUMP_FILTERED, "DUMP_FILTERED"},
		{unix.NLM_F_DUMP, "DUMP"}, {unix.NLM_F_CREATE, "CREATE"}, {unix.NLM_F_APPEND, "APPEND"},
	} {
		if flags&f.bits == f.bits {
			names = append(names, f.name)
			flags &^= f.bits
		}
	}
	if flags != 0 {
		names = append(names, fmt.Sprintf("%#x", flags))
	}
	return strings.Join(names, "|")
}
