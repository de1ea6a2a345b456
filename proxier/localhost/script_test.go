package localhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/test/script"
)

// story is the state of a script: a Server, endpoints and connections. The two
// ends of connection c are c and c.endpoint. These are the steps, besides the
// standard ones:
//
//	endpoint NAME                  starts the server of an endpoint
//	serve PORT ENDPOINT…           sets the targets of a NodePort
//	delete PORT                    deletes a NodePort
//	open, connections              print numbers of the Server
//	fails-again                    prints whether it failed twice to open a port
//	connect NAME PORT ENDPOINT     opens a connection to an endpoint
//	try PORT                       prints what happens to a connection
//	send END TEXT[*N], pass END, read END
//	end END, close END, reset END, is-reset END
//	resets PORT ENDPOINT           resets connections to a target
//	occupy PORT, vacate            another program listens on a port
//	drain, end-drain, drained      drains the Server
//	event, state PORT
type story struct {
	*fixture
	endpoints map[string]*endpoint
	ends      map[string]*net.TCPConn
	sent      map[string]string // to an end
	other     net.Listener
	drain     context.CancelFunc
	drained   chan struct{}
}

// Each script runs for 127.0.0.1 and for ::1.
func TestScripts(t *testing.T) {
	for _, addr := range []string{"127.0.0.1", "::1"} {
		t.Run(addr, func(t *testing.T) {
			setup := func(e *script.Env) (map[string]script.Command, error) {
				s := &story{
					fixture:   newFixture(e.T, addr, func(s *Server) { s.config.Limit = newLimit(3) }),
					endpoints: make(map[string]*endpoint), ends: make(map[string]*net.TCPConn),
					sent: make(map[string]string),
				}
				return s.commands(), nil
			}
			script.Run(t, script.Suite{Patience: patience, Setup: setup})
		})
	}
}

func (s *story) commands() map[string]script.Command {
	return script.Steps(map[string]any{
		"endpoint": func(name string) { s.endpoints[name] = s.fixture.endpoint() },
		"serve":    s.serve, "delete": s.Server.Delete,
		"open":        func() int { return s.Stats().Listeners },
		"fails-again": func() bool { return s.Stats().Failures > 1 },
		"connections": s.count,
		"connect":     s.open, "try": s.try, "send": s.send, "pass": s.pass, "read": s.read,
		"end":      func(name string) error { return s.ends[name].CloseWrite() },
		"close":    func(name string) error { return s.ends[name].Close() },
		"reset":    func(name string) { reset(s.ends[name]) },
		"is-reset": func(name string) error { return isBroken(s.ends[name]) },
		"resets":   s.resets, "occupy": s.occupy, "vacate": func() error { return s.other.Close() },
		"drain": s.startDrain, "end-drain": func() { s.drain() }, "drained": s.isDrained,
		"event": s.event, "state": s.state,
	})
}

// serve sets the targets of a NodePort. The endpoint nowhere refuses
// connections.
func (s *story) serve(port uint16, endpoints ...string) {
	n := NodePort{Port: port, Namespace: "ns", Name: "web", ServicePort: "ns/web:http"}
	for _, name := range endpoints {
		target := netip.AddrPortFrom(s.config.Addr, 1)
		if name != "nowhere" {
			target = s.endpoints[name].at
		}
		n.Targets = append(n.Targets, target)
	}
	s.Set(n)
}

// open opens a connection that passes a byte to an endpoint.
func (s *story) open(name string, port uint16, endpoint string) error {
	c, err := s.connectTo(port)
	if err != nil {
		return err
	}
	s.ends[name], s.ends[name+".endpoint"] = c, s.endpoints[endpoint].next(s.t)
	return s.pass(name)
}

// try connects to a port and returns what happens.
func (s *story) try(port uint16) string {
	c, err := s.connectTo(port)
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	}
	return fmt.Sprint(err)
}

// otherEnd returns the name of the other end of a connection.
func otherEnd(name string) string {
	if c, ok := strings.CutSuffix(name, ".endpoint"); ok {
		return c
	}
	return name + ".endpoint"
}

// send sends a text, which can be repeated: TEXT[*N].
func (s *story) send(end, text string) error {
	text, times, repeated := strings.Cut(text, "*")
	if n, err := strconv.Atoi(times); repeated && err == nil {
		text = strings.Repeat(text, n)
	}
	s.sent[otherEnd(end)] += text
	_, err := io.WriteString(s.ends[end], text)
	return err
}

// pass sends a byte and waits until the other end has it.
func (s *story) pass(end string) error { return passByte(s.ends[end], s.ends[otherEnd(end)]) }

// read reads an end until the other one has ended its direction, and returns
// the size of the text. It must be the text that was sent.
func (s *story) read(end string) (string, error) {
	got, err := io.ReadAll(s.ends[end])
	if err == nil && string(got) != s.sent[end] {
		err = fmt.Errorf("got %.100q, want %.100q", got, s.sent[end])
	}
	s.sent[end] = ""
	return fmt.Sprintf("%d bytes", len(got)), err
}

// resets resets connections to a target, and returns their number.
func (s *story) resets(port uint16, target string) int {
	at := netip.MustParseAddrPort("10.0.0.1:80")
	if e := s.endpoints[target]; e != nil {
		at = e.at
	}
	return s.Server.Reset(port, at)
}

// occupy makes another program listen on a port.
func (s *story) occupy(port uint16) (err error) {
	s.other, err = s.Server.listen(netip.AddrPortFrom(s.config.Addr, port))
	return err
}

// startDrain drains the Server in the background.
func (s *story) startDrain() {
	var ctx context.Context
	ctx, s.drain = context.WithCancel(s.t.Context())
	s.drained = make(chan struct{})
	go func() {
		s.Drain(ctx)
		close(s.drained)
	}()
}

func (s *story) isDrained() bool {
	select {
	case <-s.drained:
		return true
	default:
		return false
	}
}

// event returns the only event.
func (s *story) event() (string, error) {
	e := <-s.events
	if n := len(s.events); n > 0 {
		return "", fmt.Errorf("got %d more events", n)
	}
	return fmt.Sprintf("%s/%s: %s", e.Namespace, e.Name, e.Message), nil
}

// state returns the targets of a port, and its failure.
func (s *story) state(port uint16) string {
	state := s.State(port)
	return fmt.Sprintf("%d targets %s", len(state.Targets), state.Failure)
}
