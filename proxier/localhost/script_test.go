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
	"time"

	"github.com/nftproxy/nftproxy/test/script"
)

// story is the state of a script: a Server, endpoints and connections. The two
// ends of connection c are c and c.endpoint. These are the steps, besides the
// standard ones:
//
//	endpoint NAME                  starts the server of an endpoint
//	serve PORT ENDPOINT…           sets the targets of a NodePort
//	delete PORT                    deletes a NodePort
//	open, failures, connections    print numbers of the Server
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
	all := map[string]script.Command{
		"connect": s.open, "try": s.try, "read": s.read, "is-reset": s.isReset, "resets": s.resets,
		"drained": s.isDrained, "event": s.event, "state": s.state,
		"open": func(*script.Script, []string) (string, error) { return fmt.Sprint(s.Stats().Listeners), nil },
		"failures": func(_ *script.Script, args []string) (string, error) {
			return strconv.FormatBool(s.Stats().Failures >= 3), nil
		},
		"connections": func(*script.Script, []string) (string, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return fmt.Sprint(len(s.fixture.connections)), nil
		},
	}
	for name, step := range map[string]func(args []string) error{
		"endpoint": func(args []string) error { s.endpoints[args[0]] = s.fixture.endpoint(); return nil },
		"serve":    s.serve, "delete": s.remove, "send": s.send, "pass": s.pass,
		"occupy": s.occupy, "drain": s.startDrain,
		"vacate":    func([]string) error { return s.other.Close() },
		"end-drain": func([]string) error { s.drain(); return nil },
		"end":       func(args []string) error { return s.ends[args[0]].CloseWrite() },
		"close":     func(args []string) error { return s.ends[args[0]].Close() },
		"reset":     func(args []string) error { reset(s.ends[args[0]]); return nil },
	} {
		all[name] = func(_ *script.Script, args []string) (string, error) { return "", step(args) }
	}
	return all
}

// serve sets the targets of a NodePort: PORT ENDPOINT… The endpoint nowhere
// refuses connections.
func (s *story) serve(args []string) error {
	port, err := strconv.Atoi(args[0])
	n := NodePort{Port: uint16(port), Namespace: "ns", Name: "web", ServicePort: "ns/web:http"}
	for _, name := range args[1:] {
		target := netip.AddrPortFrom(s.config.Addr, 1)
		if name != "nowhere" {
			target = s.endpoints[name].at
		}
		n.Targets = append(n.Targets, target)
	}
	s.Set(n)
	return err
}

func (s *story) remove(args []string) error {
	port, err := strconv.Atoi(args[0])
	s.Delete(uint16(port))
	return err
}

func (s *story) dialPort(port string) (*net.TCPConn, error) {
	n, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	c, err := s.Server.dial(s.t.Context(), netip.AddrPortFrom(s.config.Addr, uint16(n)))
	if err != nil {
		return nil, err
	}
	s.t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn), c.SetDeadline(time.Now().Add(patience))
}

// open opens a connection that passes a byte to an endpoint:
// NAME PORT ENDPOINT.
func (s *story) open(_ *script.Script, args []string) (string, error) {
	c, err := s.dialPort(args[1])
	if err != nil {
		return "", err
	}
	s.ends[args[0]], s.ends[args[0]+".endpoint"] = c, s.endpoints[args[2]].next(s.t)
	return "", s.pass(args)
}

// try connects to a port and returns what happens.
func (s *story) try(_ *script.Script, args []string) (string, error) {
	c, err := s.dialPort(args[0])
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused", nil
	case errors.Is(err, syscall.ECONNRESET):
		return "reset", nil
	}
	return fmt.Sprint(err), nil
}

// otherEnd returns the name of the other end of a connection.
func otherEnd(name string) string {
	if c, ok := strings.CutSuffix(name, ".endpoint"); ok {
		return c
	}
	return name + ".endpoint"
}

// send sends a text, which can be repeated: END TEXT[*N].
func (s *story) send(args []string) error {
	text, times, repeated := strings.Cut(args[1], "*")
	if n, err := strconv.Atoi(times); repeated && err == nil {
		text = strings.Repeat(text, n)
	}
	s.sent[otherEnd(args[0])] += text
	_, err := io.WriteString(s.ends[args[0]], text)
	return err
}

// pass sends a byte and waits until the other end has it.
func (s *story) pass(args []string) error {
	_, err := io.WriteString(s.ends[args[0]], "x")
	if err == nil {
		_, err = io.ReadFull(s.ends[otherEnd(args[0])], make([]byte, 1))
	}
	return err
}

// read reads an end until the other one has ended its direction, and returns
// the size of the text. It must be the text that was sent.
func (s *story) read(_ *script.Script, args []string) (string, error) {
	got, err := io.ReadAll(s.ends[args[0]])
	if err == nil && string(got) != s.sent[args[0]] {
		err = fmt.Errorf("got %.100q, want %.100q", got, s.sent[args[0]])
	}
	s.sent[args[0]] = ""
	return fmt.Sprintf("%d bytes", len(got)), err
}

// isReset fails unless an end is reset. After the other direction ended,
// reading does not find a reset, and writing does.
func (s *story) isReset(_ *script.Script, args []string) (string, error) {
	c := s.ends[args[0]]
	_, err := io.Copy(io.Discard, c)
	for deadline := time.Now().Add(patience); err == nil && time.Now().Before(deadline); {
		_, err = c.Write([]byte("y"))
	}
	if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		return "", fmt.Errorf("%s: got %w, want a reset", args[0], err)
	}
	return "", nil
}

// resets resets connections to a target, and returns their number: PORT TARGET.
func (s *story) resets(_ *script.Script, args []string) (string, error) {
	port, err := strconv.Atoi(args[0])
	target := netip.MustParseAddrPort("10.0.0.1:80")
	if e := s.endpoints[args[1]]; e != nil {
		target = e.at
	}
	return fmt.Sprint(s.Server.Reset(uint16(port), target)), err
}

// occupy makes another program listen on a port.
func (s *story) occupy(args []string) error {
	port, err := strconv.Atoi(args[0])
	if err == nil {
		s.other, err = s.Server.listen(netip.AddrPortFrom(s.config.Addr, uint16(port)))
	}
	return err
}

// startDrain drains the Server in the background.
func (s *story) startDrain([]string) error {
	var ctx context.Context
	ctx, s.drain = context.WithCancel(s.t.Context())
	s.drained = make(chan struct{})
	go func() {
		s.Drain(ctx)
		close(s.drained)
	}()
	return nil
}

func (s *story) isDrained(*script.Script, []string) (string, error) {
	select {
	case <-s.drained:
		return "true", nil
	default:
		return "false", nil
	}
}

// event returns the only event.
func (s *story) event(*script.Script, []string) (string, error) {
	e := <-s.events
	if n := len(s.events); n > 0 {
		return "", fmt.Errorf("got %d more events", n)
	}
	return fmt.Sprintf("%s/%s: %s", e.Namespace, e.Name, e.Message), nil
}

// state returns the targets of a port, and its failure.
func (s *story) state(_ *script.Script, args []string) (string, error) {
	port, err := strconv.Atoi(args[0])
	state := s.State(uint16(port))
	return fmt.Sprintf("%d targets %s", len(state.Targets), state.Failure), err
}
