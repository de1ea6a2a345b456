package lab

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultTimeout is the default timeout of a probe. It leaves time to repeat
// one lost packet.
const DefaultTimeout = 3 * time.Second

// ProbeOptions are the options of a probe.
type ProbeOptions struct {
	// Local is the source. The kernel chooses a zero address, and a zero port
	// for TCP. For UDP and SCTP, the namespace chooses one that it did not use
	// for long: connection tracking may have an older flow with the same port,
	// which it would continue.
	Local netip.AddrPort
	// NewPort makes the namespace choose the port for TCP, too.
	NewPort bool
	// Timeout limits the attempt. The default is DefaultTimeout.
	Timeout time.Duration
}

// Probe makes one attempt to reach a server of the lab. The network is tcp,
// udp or sctp, with or without the family (tcp4). UDP and SCTP send one
// packet and do not repeat it. If the context ends before the timeout, the
// outcome is TimedOut too.
func Probe(ctx context.Context, from *Namespace, network string, to netip.AddrPort, options ProbeOptions) Result {
	conn, result := Open(ctx, from, network, to, options)
	if conn != nil {
		conn.Close()
	}
	return result
}

// Conn is a TCP connection, or a UDP or SCTP flow, that a server has
// answered.
type Conn struct {
	net.Conn
	reader *bufio.Reader
	answer Answer
}

// Open is like Probe and keeps the connection or flow. The Conn is nil unless
// the outcome is Answered.
func Open(ctx context.Context, from *Namespace, network string, to netip.AddrPort,
	options ProbeOptions,
) (*Conn, Result) {
	if !strings.HasSuffix(network, "4") && !strings.HasSuffix(network, "6") {
		network = networkOf(network, to.Addr())
	}
	if options.Local.Port() == 0 && (options.NewPort || !strings.HasPrefix(network, "tcp")) {
		options.Local = netip.AddrPortFrom(options.Local.Addr(), from.nextPort())
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(options.Timeout, DefaultTimeout))
	defer cancel()
	socket, err := from.dial(ctx, network, options, to)
	if err != nil {
		return nil, resultOf(Answer{}, err)
	}
	conn := &Conn{Conn: socket, reader: bufio.NewReader(socket)}
	result := conn.greet(ctx)
	if result.Outcome != Answered {
		conn.Close()
		return nil, result
	}
	conn.answer = result.Answer
	return conn, result
}

// nextPort returns a source port below the kernel's own range and NodePorts,
// and above the ports of kube-proxy.
func (n *Namespace) nextPort() uint16 {
	const first, ports = 12000, 18000
	return uint16(first + n.flows.Add(1)%ports)
}

// networkOf adds the family of an address to the name of a protocol.
func networkOf(protocol string, addr netip.Addr) string {
	if addr.Is4() {
		return protocol + "4"
	}
	return protocol + "6"
}

// greet gets the first answer. A TCP server sends it unasked.
func (c *Conn) greet(ctx context.Context) Result {
	if !c.isTCP() {
		return c.Ask(ctx)
	}
	defer c.limit(ctx)()
	return resultOf(c.readAnswer())
}

// Ask checks whether the connection or flow still works. A TCP server must
// echo a line; the answer is its first one. On a flow Ask sends another
// packet, which any server may answer. The limit is the context's deadline or
// DefaultTimeout.
func (c *Conn) Ask(ctx context.Context) Result {
	defer c.limit(ctx)()
	const question = "question\n"
	_, err := c.Write([]byte(question))
	// EPERM is a packet that the sender's own rules dropped or rejected. TCP
	// does not report it. The outcome depends on the answer.
	if err != nil && !errors.Is(err, unix.EPERM) {
		return resultOf(Answer{}, err)
	}
	if !c.isTCP() {
		return resultOf(c.readAnswer())
	}
	line, err := c.reader.ReadString('\n')
	if err == nil && line != question {
		err = fmt.Errorf("sent %q, got %q", question, line)
	}
	return resultOf(c.answer, err)
}

// Lost returns the number of packets that a TCP connection lost, with the first
// one: the kernel repeated them. On a flow it returns 0.
//
// On a busy machine, the answer to the first packet can come after the kernel
// repeated it, a second later. Then the packet was not lost. The time stamp of
// the answer shows which packet it answers, so the round trip takes more than
// the second.
func (c *Conn) Lost() (uint32, error) {
	tcp, ok := c.Conn.(*net.TCPConn)
	if !ok {
		return 0, nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0, err
	}
	var info *unix.TCPInfo
	var failed error
	err = raw.Control(func(fd uintptr) {
		info, failed = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
	})
	if err := errors.Join(err, failed); err != nil {
		return 0, err
	}
	if info.Total_retrans == 1 && time.Duration(info.Rtt)*time.Microsecond >= time.Second {
		return 0, nil
	}
	return info.Total_retrans, nil
}

// ConnectOnce connects and disconnects. It fails also if a packet was lost and
// repeated.
func ConnectOnce(
	ctx context.Context, from *Namespace, network string, to netip.AddrPort, options ProbeOptions,
) error {
	conn, result := Open(ctx, from, network, to, options)
	if conn == nil {
		return errors.New(result.String())
	}
	defer conn.Close()
	lost, err := conn.Lost()
	if err == nil && lost > 0 {
		err = fmt.Errorf("got %d lost packets, want none", lost)
	}
	return err
}

func (c *Conn) isTCP() bool {
	_, tcp := c.Conn.(*net.TCPConn)
	return tcp
}

func (c *Conn) readAnswer() (Answer, error) {
	line, err := c.reader.ReadString('\n')
	if err != nil {
		return Answer{}, err
	}
	return parseAnswer(line)
}

// limit ends reads and writes with the context. The returned function ends
// the limit.
func (c *Conn) limit(ctx context.Context) func() {
	deadline, limited := ctx.Deadline()
	if !limited {
		deadline = time.Now().Add(DefaultTimeout)
	}
	c.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	return func() { stop() }
}

// Outcome is the outcome of an attempt to reach a server.
type Outcome int

// The outcomes.
const (
	// Failed is any other error: a source port in use, an invalid answer, a
	// connection reset after it was established. See Result.Err.
	Failed Outcome = iota
	// Answered is the answer of a server of the lab.
	Answered
	// Refused is a TCP reset or an ICMP port unreachable.
	Refused
	// TimedOut means that no answer came.
	TimedOut
	// Unreachable is a missing route or another ICMP unreachable.
	Unreachable
)

// String returns the outcome's name in lower case.
func (o Outcome) String() string {
	return [...]string{"failed", "answered", "refused", "timed out", "unreachable"}[o]
}

// outcomeOf classifies the error of a socket.
func outcomeOf(err error) Outcome {
	var timeout net.Error
	switch {
	case err == nil:
		return Answered
	case errors.Is(err, unix.ECONNREFUSED):
		return Refused
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.EACCES):
		return Unreachable
	case errors.As(err, &timeout) && timeout.Timeout():
		return TimedOut
	}
	return Failed
}

// Result is the result of an attempt.
type Result struct {
	Outcome Outcome
	// Answer is the server's answer if Outcome is Answered.
	Answer Answer
	// Err is the socket's error if Outcome is not Answered.
	Err error
}

func resultOf(answer Answer, err error) Result {
	if err != nil {
		answer = Answer{}
	}
	return Result{Outcome: outcomeOf(err), Answer: answer, Err: err}
}

// String returns the outcome with the answer or the error.
func (r Result) String() string {
	if r.Outcome == Answered {
		return fmt.Sprintf("answered by %s", r.Answer)
	}
	return fmt.Sprintf("%s (%v)", r.Outcome, r.Err)
}

// Answer is the answer of a server of the lab, the line "pod-a
// 10.244.1.1:41234".
type Answer struct {
	// Server is the name of the server's namespace.
	Server string
	// Source is the client's address and port as the server sees them.
	Source netip.AddrPort
}

// String returns the line, without its end.
func (a Answer) String() string { return a.Server + " " + a.Source.String() }

// line returns the answer as servers send it.
func (a Answer) line() []byte { return []byte(a.String() + "\n") }

func parseAnswer(line string) (Answer, error) {
	server, source, found := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	if !found {
		return Answer{}, fmt.Errorf("answer %q: want a name and an address", line)
	}
	addr, err := netip.ParseAddrPort(source)
	if err != nil {
		return Answer{}, fmt.Errorf("answer %q: %w", line, err)
	}
	return Answer{Server: server, Source: addr}, nil
}
