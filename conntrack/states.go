package conntrack

// tcpStates are the names of enum tcp_conntrack
// (linux/netfilter/nf_conntrack_tcp.h).
var tcpStates = [...]string{
	"NONE", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE",
	"SYN_SENT2",
}

// sctpStates are the names of enum sctp_conntrack
// (linux/netfilter/nf_conntrack_sctp.h).
var sctpStates = [...]string{
	"NONE", "CLOSED", "COOKIE_WAIT", "COOKIE_ECHOED", "ESTABLISHED", "SHUTDOWN_SENT", "SHUTDOWN_RECD",
	"SHUTDOWN_ACK_SENT",
	"HEARTBEAT_SENT", "HEARTBEAT_ACKED",
}

// States of connections that have not begun, or have ended.
const (
	tcpSynSent  = 1
	tcpSynRecv  = 2
	tcpTimeWait = 7
	tcpClose    = 8
	tcpSynSent2 = 9
	sctpClosed  = 1
)
