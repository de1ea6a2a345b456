package healthcheck

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/script"
)

// node is a node of a script, in its own network namespace: the servers of a
// proxy, other programs and a client. These are its steps, besides the standard
// ones:
//
//	service NAMESPACE/NAME PORT ENDPOINTS   sets a Service, and starts the server
//	delete NAMESPACE/NAME                   deletes a Service
//	addresses all|none|ADDRESS…             sets the addresses to listen on
//	proxy healthy|unhealthy
//	listen ADDRESS, serve, retry ADDRESS    an HTTPServer
//	healthz ADDRESS                         a ProxyServer, with these:
//	family FAMILY never|old|recent [late|failing]
//	node eligible|deleted
//	get [METHOD] ADDRESS, headers ADDRESS   prints an answer, or refused
//	await ADDRESS WORD…                     waits for an answer with words
//	served PORT ADDRESS…                    waits until only these are open
//	keep ADDRESS, send, closed              a connection that stays open
//	hold, ask ADDRESS, release, answer      a request that takes long
//	shutdown, stopped, ended                Run ends
//	retry-after DURATION, drain-timeout DURATION, pass DURATION
//	events, attempts ADDRESS N, break ADDRESS
//	occupy ADDRESS, vacate ADDRESS, free PORT, address ADDRESS
type node struct {
	namespace
	t                  testing.TB
	services           *ServiceServer
	http               *HTTPServer
	minDelay, maxDelay time.Duration
	drain              time.Duration

	ctx  context.Context
	stop context.CancelFunc
	ends chan error // of Run

	healthy  atomic.Bool
	held     chan struct{} // if not nil, closed when requests may go on
	arrived  chan struct{} // receives a value for each held request
	answered chan string
	conn     net.Conn
	answers  *bufio.Reader
	families []FamilyHealth
	eligible bool

	mu        sync.Mutex
	events    []string
	attempts  map[string]int // to listen
	listeners map[string]net.Listener
	programs  map[string]net.Listener // of other programs
}

func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{Setup: func(e *script.Env) (map[string]script.Command, error) {
		n := newNode(e.T)
		for _, addr := range []string{"192.0.2.1", "192.0.2.2", "fd01::1", "fd01::2"} {
			n.addAddr(e.T, addr)
		}
		return script.Steps(map[string]any{
			"service": n.setService, "delete": n.deleteService, "addresses": n.setAddrs, "proxy": n.setProxy,
			"retry-after": n.retryAfter, "drain-timeout": n.drainTimeout, "pass": time.Sleep,
			"listen": n.listenHTTP, "serve": n.serveHTTP, "retry": n.retryHTTP,
			"healthz": n.proxyServer, "family": n.setFamily, "node": n.setNode,
			"get": n.get, "headers": n.headers, "await": n.await, "served": n.served,
			"keep": n.keep, "send": n.send, "closed": n.closed,
			"hold": n.hold, "ask": n.ask, "release": n.release, "answer": n.answer,
			"shutdown": n.shutdown, "stopped": n.stopped, "ended": n.ended,
			"events": n.takeEvents, "attempts": n.awaitAttempts, "break": n.breakListener,
			"occupy": n.occupy, "vacate": n.vacate, "free": n.free, "address": n.newAddr,
		}), nil
	}})
}

func newNode(t testing.TB) *node {
	n := &node{
		namespace: newNamespace(t), t: t, minDelay: time.Millisecond, maxDelay: 10 * time.Millisecond,
		drain: time.Minute, ends: make(chan error, 1), arrived: make(chan struct{}, 10),
		answered: make(chan string, 2), eligible: true, attempts: make(map[string]int),
		listeners: make(map[string]net.Listener), programs: make(map[string]net.Listener),
	}
	n.healthy.Store(true)
	n.ctx, n.stop = context.WithCancel(context.Background())
	t.Cleanup(n.stop)
	return n
}

// listen listens for a server.
func (n *node) listen(network, address string) (net.Listener, error) {
	l, err := n.namespace.listen(network, address)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.attempts[address]++
	n.listeners[address] = l
	return l, err
}

// server returns the server of the Services, which runs.
func (n *node) server() *ServiceServer {
	if n.services != nil {
		return n.services
	}
	s, err := NewServiceServer(ServiceConfig{NodeName: "worker", Healthy: n.isHealthy, Report: func(e Event) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.events = append(n.events, fmt.Sprintf("%s/%s %s: %s\n", e.Namespace, e.Name, e.Reason, e.Message))
	}})
	if err != nil {
		n.t.Fatal(err)
	}
	s.listen, s.minDelay, s.maxDelay, s.drainTimeout = n.listen, n.minDelay, n.maxDelay, n.drain
	n.services = s
	n.run(s.Run)
	return s
}

// run runs a server until the script ends, or shutdown.
func (n *node) run(run func(context.Context) error) {
	running := make(chan struct{})
	go func() {
		n.ends <- run(n.ctx)
		close(running)
	}()
	n.t.Cleanup(func() {
		n.stop()
		select {
		case <-running:
		case <-time.After(10 * time.Second):
			n.t.Error("Run did not return")
		}
	})
}

func (n *node) isHealthy() bool {
	if n.held != nil {
		n.arrived <- struct{}{}
		<-n.held
	}
	return n.healthy.Load()
}

// setService sets a Service: NAMESPACE/NAME PORT ENDPOINTS.
func (n *node) setService(of string, port uint16, endpoints int) {
	namespace, name, _ := strings.Cut(of, "/")
	n.server().SetService(Service{Namespace: namespace, Name: name, Port: port, LocalEndpoints: endpoints})
}

func (n *node) deleteService(of string) {
	namespace, name, _ := strings.Cut(of, "/")
	n.server().DeleteService(namespace, name)
}

// setAddrs sets the addresses to listen on: all, none or a list, in which
// invalid is an invalid address.
func (n *node) setAddrs(args ...string) error {
	addrs := []netip.Addr{}
	for _, arg := range args {
		addr, err := netip.ParseAddr(arg)
		switch {
		case arg == "all":
			addrs = nil
		case arg == "invalid":
			addrs = append(addrs, netip.Addr{})
		case arg != "none" && err != nil:
			return err
		case err == nil:
			addrs = append(addrs, addr)
		}
	}
	n.server().SetAddrs(addrs)
	return nil
}

// setProxy sets whether the proxy is healthy.
func (n *node) setProxy(state string) { n.healthy.Store(state == "healthy") }

func (n *node) retryAfter(d time.Duration) { n.minDelay, n.maxDelay = d, d }

func (n *node) drainTimeout(d time.Duration) { n.drain = d }

// newHTTP creates an HTTPServer. Its answer is ok.
func (n *node) newHTTP(addr string, hardFail bool) {
	n.http = newHTTPServer(n.namespace, addr, hardFail)
	n.http.listen = func(_ context.Context, network, address string) (net.Listener, error) {
		return n.listen(network, address)
	}
}

// listenHTTP creates an HTTPServer and opens its port, twice. If that fails,
// Run fails in the same way.
func (n *node) listenHTTP(addr string) error {
	n.newHTTP(addr, true)
	err := n.http.Listen(n.ctx)
	if again := n.http.Listen(n.ctx); fmt.Sprint(err) != fmt.Sprint(again) {
		n.t.Errorf("second call of Listen: got %v, want %v", again, err)
	}
	if err != nil {
		if fails := n.http.Run(n.ctx); fails == nil || fails.Error() != err.Error() {
			n.t.Errorf("Run: got %v, want %v", fails, err)
		}
	}
	return err
}

// serveHTTP runs the HTTPServer.
func (n *node) serveHTTP() { n.run(n.http.Run) }

// retryHTTP runs an HTTPServer that retries after errors.
func (n *node) retryHTTP(addr string) {
	n.newHTTP(addr, false)
	n.serveHTTP()
}

// proxyServer runs a ProxyServer.
func (n *node) proxyServer(addr string) error {
	count := func(path string) func(int) {
		return func(code int) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.events = append(n.events, fmt.Sprintln(path, code))
		}
	}
	p, err := NewProxyServer(ProxyConfig{
		Addr: addr, Health: func() []FamilyHealth { return n.families },
		NodeEligible: func() bool { return n.eligible },
		OnHealthz:    count("healthz"), OnLivez: count("livez"),
	})
	if err != nil {
		return err
	}
	n.http = p.HTTPServer
	n.namespace.Do(func() { err = p.Listen(n.ctx) })
	if err == nil {
		n.serveHTTP()
	}
	return err
}

// setFamily sets the health of a family: FAMILY never|old|recent
// [late|failing].
func (n *node) setFamily(family, updated string, state ...string) {
	at := slices.IndexFunc(n.families, func(f FamilyHealth) bool { return f.Family == family })
	if at < 0 {
		at = len(n.families)
		n.families = append(n.families, FamilyHealth{Family: family})
	}
	f := &n.families[at]
	f.LastUpdated = times[strings.ToUpper(updated)]
	f.Healthy, f.Failing = !slices.Contains(state, "late"), slices.Contains(state, "failing")
}

// times are words for times in answers. NOW is the time of the request.
var times = map[string]time.Time{
	"NEVER": {}, "OLD": time.Date(2020, 1, 2, 3, 4, 5, 6, time.UTC),
	"RECENT": time.Date(2020, 1, 2, 3, 4, 7, 0, time.UTC),
}

// setNode sets whether load balancers may send traffic to the node.
func (n *node) setNode(state string) { n.eligible = state == "eligible" }

// request sends a request: [METHOD] ADDRESS[/PATH].
func (n *node) request(args ...string) (resp *http.Response, body string, err error) {
	method := "GET"
	if len(args) > 1 {
		method, args = args[0], args[1:]
	}
	req, err := http.NewRequest(method, "http://"+args[0], nil)
	if err != nil {
		return nil, "", err
	}
	if resp, err = n.client().Do(req); err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp, string(b), err
}

// get sends a request and returns the answer: its status and body.
func (n *node) get(args ...string) (string, error) {
	before := time.Now()
	resp, body, err := n.request(args...)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "refused\n", nil
	}
	if err != nil {
		return "", err
	}
	for word, at := range times {
		body = strings.ReplaceAll(body, `"`+at.Format(time.RFC3339Nano)+`"`, word)
	}
	if _, rest, ok := strings.Cut(body, `"currentTime":"`); ok {
		now, _, _ := strings.Cut(rest, `"`)
		if at, err := time.Parse(time.RFC3339Nano, now); err != nil || at.Before(before) || at.After(time.Now()) {
			return body, errors.New("the answer does not have the current time")
		}
		body = strings.ReplaceAll(body, `"`+now+`"`, "NOW")
	}
	return fmt.Sprintf("%d %s\n", resp.StatusCode, body), nil
}

// headers returns the headers of the answer, except Date.
func (n *node) headers(args ...string) (string, error) {
	resp, _, err := n.request(args...)
	if err != nil {
		return "", err
	}
	resp.Header.Del("Date")
	var text strings.Builder
	err = resp.Header.Write(&text)
	return strings.ReplaceAll(text.String(), "\r", ""), err
}

// await waits for an answer whose first line or Service has these words:
// ADDRESS WORD...
func (n *node) await(addr string, want ...string) error {
	return eventually(func() error {
		got, err := n.get(addr)
		words := strings.Fields(strings.NewReplacer(`"`, "", ",", "").Replace(got))
		for _, word := range want {
			if !slices.Contains(words, word) {
				err = errors.Join(err, fmt.Errorf("got %swant %q", got, want))
			}
		}
		return err
	})
}

// served waits until a port is open on the given addresses, and on no other
// address of the node: PORT ADDRESS...
func (n *node) served(port string, want ...string) error {
	all := strings.Fields("127.0.0.1 192.0.2.1 192.0.2.2 ::1 fd01::1 fd01::2")
	if slices.Equal(want, []string{"all"}) {
		want = all
	}
	return eventually(func() error {
		var got []string
		for _, addr := range all {
			text, err := n.get(net.JoinHostPort(addr, port))
			if err != nil {
				return err
			}
			if text != "refused\n" {
				got = append(got, addr)
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("port %s is open on %v, want %v", port, got, want)
		}
		return nil
	})
}

// eventually waits up to 10 s until check succeeds.
func eventually(check func() error) (err error) {
	for range 2000 {
		if err = check(); err == nil {
			return nil
		}
		time.Sleep(5 * time.Millisecond)
	}
	return err
}

// keep opens a connection and sends the first half of a request.
func (n *node) keep(addr string) (err error) {
	n.namespace.Do(func() { n.conn, err = net.Dial("tcp", addr) })
	if err == nil {
		n.t.Cleanup(func() { n.conn.Close() })
		n.conn.SetDeadline(time.Now().Add(readTimeout / 2)) // before the server's
		n.answers = bufio.NewReader(n.conn)
		_, err = io.WriteString(n.conn, "GET / HTTP/1.1\r\n")
	}
	return err
}

// send sends the rest of the request on the kept connection, returns the
// status, and sends the first half of the next request.
func (n *node) send() (status int, err error) {
	io.WriteString(n.conn, "Host: x\r\n\r\n")
	resp, err := http.ReadResponse(n.answers, nil)
	if err != nil {
		return 0, err
	}
	io.Copy(io.Discard, resp.Body)
	_, err = io.WriteString(n.conn, "GET / HTTP/1.1\r\n")
	return resp.StatusCode, err
}

// closed waits until the server closes the kept connection.
func (n *node) closed() error {
	var timeout net.Error
	if got, err := n.answers.ReadByte(); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("got byte %q, %v, want a closed connection", got, err)
	}
	return nil
}

// hold makes requests wait for release.
func (n *node) hold() { n.held = make(chan struct{}) }

// ask sends a request in the background, and waits until it arrived.
func (n *node) ask(addr string) {
	go func() {
		text, err := n.get(addr)
		if err != nil {
			text = err.Error()
		}
		status, _, _ := strings.Cut(text, " ")
		n.answered <- status
	}()
	<-n.arrived
}

func (n *node) release() { close(n.held) }

// answer returns the status of an answer to a request in the background.
func (n *node) answer() string { return <-n.answered }

// shutdown ends the context of Run.
func (n *node) shutdown() { n.stop() }

// stopped fails if Run has not returned.
func (n *node) stopped() error {
	select {
	case err := <-n.ends:
		n.ends <- err
		return err
	default:
		return errors.New("Run has not returned")
	}
}

// ended waits until Run returns, and returns its error. Other servers can run
// afterwards.
func (n *node) ended() error {
	err := <-n.ends
	n.ctx, n.stop = context.WithCancel(context.Background())
	return err
}

func (n *node) takeEvents() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer func() { n.events = nil }()
	return strings.Join(n.events, "")
}

// awaitAttempts waits for more attempts to listen: ADDRESS NUMBER.
func (n *node) awaitAttempts(addr string, more int) error {
	read := func() int {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.attempts[addr]
	}
	want := read() + more
	return eventually(func() error {
		if got := read(); got < want {
			return fmt.Errorf("got %d attempts to listen on %s, want %d", got, addr, want)
		}
		return nil
	})
}

// breakListener closes the socket of a server.
func (n *node) breakListener(addr string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.listeners[addr].Close()
}

// occupy makes another program listen on an address, and vacate ends it.
func (n *node) occupy(addr string) (err error) {
	n.programs[addr], err = n.namespace.listen("tcp", addr)
	return err
}

func (n *node) vacate(addr string) error { return n.programs[addr].Close() }

// free waits until another program can listen on a port.
func (n *node) free(port string) error {
	return eventually(func() error {
		l, err := n.namespace.listen("tcp", ":"+port)
		if err == nil {
			err = l.Close()
		}
		return err
	})
}

// newAddr adds an address to the node.
func (n *node) newAddr(addr string) { n.addAddr(n.t, addr) }
