package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultTimeout is how long a probe waits unless its options say otherwise: long
// enough for one lost and repeated packet. A probe that is expected to time out
// is better given less.
const DefaultTimeout = 3 * time.Second

// ProbeOptions modify a probe. The zero value is good for most.
type ProbeOptions struct {
	// Local is the source; a zero port or address lets the kernel choose it.
	Local netip.AddrPort
	// Timeout is for the whole attempt; 0 means DefaultTimeout.
	Timeout time.Duration
}

func (o ProbeOptions) timeout() time.Duration {
	if o.Timeout == 0 {
		return DefaultTimeout
	}
	return o.Timeout
}

// Probe makes one attempt to get an answer from a server of the lab and tells
// how it ended. The network is tcp4, tcp6, udp4 or udp6; tcp and udp take the
// family of the address. UDP sends one datagram and does not repeat it. A context
// that ends earlier than the timeout is a timeout too.
func Probe(ctx context.Context, from *Namespace, network string, to netip.AddrPort, options ProbeOptions) Result {
	conn, result := Open(ctx, from, network, to, options)
	if conn != nil {
		conn.Close()
	}
	return result
}

// Conn is a TCP connection or a UDP flow that a server of the lab has answered.
type Conn struct {
	net.Conn
	reader *bufio.Reader
	answer Answer
}

// Open is a probe that keeps the connection or the flow. The Conn is nil unless
// the result is Answered.
func Open(ctx context.Context, from *Namespace, network string, to netip.AddrPort, options ProbeOptions) (*Conn, Result) {
	if network == "tcp" || network == "udp" {
		network = networkOf(network, to.Addr())
	}
	ctx, cancel := context.WithTimeout(ctx, options.timeout())
	defer cancel()
	socket, err := from.dial(ctx, network, options.Local, to)
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

// greet gets the answer of the server: TCP's comes by itself.
func (c *Conn) greet(ctx context.Context) Result {
	if c.isUDP() {
		return c.Ask(ctx)
	}
	defer c.limit(ctx)()
	return resultOf(c.readAnswer())
}

// Ask tells whether the connection or the flow still works. Over TCP the server
// must send back what it is sent, and the answer is the one it once gave. Over
// UDP another datagram is sent on the same flow, and whoever gets it answers.
// The context's deadline, or else DefaultTimeout, limits it.
func (c *Conn) Ask(ctx context.Context) Result {
	defer c.limit(ctx)()
	const question = "who is there?\n"
	_, err := c.Write([]byte(question))
	// EPERM: the packet was dropped or rejected on its way out. TCP keeps that to
	// itself; for UDP, too, what counts is what comes back.
	if err != nil && !errors.Is(err, unix.EPERM) {
		return resultOf(Answer{}, err)
	}
	if c.isUDP() {
		return resultOf(c.readAnswer())
	}
	line, err := c.reader.ReadString('\n')
	if err == nil && line != question {
		err = fmt.Errorf("sent %q, got back %q", question, line)
	}
	return resultOf(c.answer, err)
}

func (c *Conn) isUDP() bool {
	_, udp := c.Conn.(*net.UDPConn)
	return udp
}

func (c *Conn) readAnswer() (Answer, error) {
	line, err := c.reader.ReadString('\n')
	if err != nil {
		return Answer{}, err
	}
	return parseAnswer(line)
}

// limit makes reads and writes end with the context. The function that it
// returns ends the limit.
func (c *Conn) limit(ctx context.Context) func() {
	deadline, limited := ctx.Deadline()
	if !limited {
		deadline = time.Now().Add(DefaultTimeout)
	}
	c.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	return func() { stop() }
}
