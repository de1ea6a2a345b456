package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
)

// connections makes connections at a rate, and judges each.
type connections struct {
	world  *world
	random *rand.Rand
	pace   *rate.Limiter
	steady []route
	wait   sync.WaitGroup

	unjudged atomic.Int64
	exact    atomic.Int64 // with one possible state

	mu       sync.Mutex
	made     map[string]int // by the kind of the Service
	failures []failure
	clients  map[string]stuck
}

// failure is a connection with an outcome that is not allowed.
type failure struct {
	route
	from, end time.Time
	affinity  bool // reports whether the client had another endpoint
	text      string
	states    string // of the Service at the time
}

// stuck is the endpoint of a client with session affinity.
type stuck struct {
	server    string
	from, end time.Time // of the last connection
}

func newConnections(w *world) *connections {
	c := &connections{
		world: w, random: rand.New(rand.NewPCG(w.soak.seed, 2)), made: map[string]int{}, clients: map[string]stuck{},
		pace: perSecond(w.soak.connections),
	}
	for _, s := range append(w.history.served("steady-"), w.history.served("graceful-")...) {
		c.steady = append(c.steady, w.routes(s)...)
	}
	return c
}

// run makes connections until ctx ends, and holds others open.
func (c *connections) run(ctx context.Context) error {
	for _, r := range c.steady {
		if r.service.Name.Name == "steady-cluster" && r.port.Protocol == cluster.TCP {
			c.wait.Go(func() { c.hold(ctx, r) })
		}
	}
	for c.pace.Wait(ctx) == nil {
		if r, ok := c.choose(); ok {
			c.wait.Go(func() { c.connect(r) })
		}
	}
	c.wait.Wait()
	return nil
}

// choose chooses a route to a steady Service, or to one that changes.
func (c *connections) choose() (route, bool) {
	const steady = 60 // percent
	if c.random.IntN(100) < steady {
		return c.steady[c.random.IntN(len(c.steady))], true
	}
	var routes []route
	if services := c.world.history.served("app-"); len(services) > 0 {
		routes = c.world.routes(services[c.random.IntN(len(services))])
	}
	if len(routes) == 0 {
		return route{}, false
	}
	return routes[c.random.IntN(len(routes))], true
}

// connect makes a connection, or sends a datagram.
func (c *connections) connect(r route) {
	const shortly = 1500 * time.Millisecond // most attempts without an answer must not have one
	// Connection tracking could have an older flow from the same port, which
	// the rules of that time translated, or did not translate.
	options := lab.ProbeOptions{Timeout: shortly, Local: netip.AddrPortFrom(r.source(), 0), NewPort: true}
	kind := "changing"
	if r.steady() {
		options.Timeout, kind = lab.DefaultTimeout, r.service.Name.Name
	}
	from := time.Now()
	known := r.via.knownAt(from)
	conn, result := lab.Open(context.Background(), r.from, r.port.Protocol.String(), r.to, options)
	end := time.Now()
	if conn != nil {
		if n, err := conn.Lost(); n > 0 && r.steady() {
			c.fail(failure{route: r, from: from, end: end, text: fmt.Sprintf("TCP lost %d packets (%v)", n, err)})
		}
		conn.Close()
	}
	c.count(kind)
	if !r.steady() && c.world.swapped(r.via, from, end) {
		c.unjudged.Add(1)
		return
	}
	c.check(r, known, from, end, result)
	if r.service.AffinityTimeout > 0 && r.steady() && result.Outcome == lab.Answered {
		c.checkAffinity(r, from, end, result.Answer.Server)
	}
}

func (c *connections) count(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made[kind]++
}

// check compares a result with what is allowed.
func (c *connections) check(r route, known, from, end time.Time, result lab.Result) {
	const pause, most, moment = 100 * time.Millisecond, 10 * time.Second, 5 * time.Second
	earlier := r.via.knownAt(from.Add(-moment))
	for {
		pending := time.Since(end) < most && c.world.history.pending(r.service.Name.Name)
		a, ok := c.world.judge.allowed(r, earlier, known, end)
		if !ok {
			c.unjudged.Add(1)
			return
		}
		if r.steady() {
			a.silence = false
		} else if a.choices > 1 && r.port.Protocol != cluster.TCP {
			a.silence = true // a proxy deletes the flow to an endpoint that is removed
		}
		if result.Outcome != lab.Answered && a.silence || a.servers[result.Answer.Server] {
			if a.choices == 1 {
				c.exact.Add(1)
			}
			return
		}
		if !pending {
			c.fail(failure{
				route: r, from: from, end: end, text: fmt.Sprintf("got %v, want %v", result, a),
				states: c.world.history.describe(r.service.Name.Name, known),
			})
			return
		}
		time.Sleep(pause) // the object of the API can differ from the object of the request
	}
}

// checkAffinity checks that a client keeps its endpoint. Connections at the
// same time may have got different ones.
func (c *connections) checkAffinity(r route, from, end time.Time, server string) {
	key := fmt.Sprint(r.via.Name, r.source(), r.service.Name, r.port)
	c.mu.Lock()
	before, known := c.clients[key]
	if from.After(before.end) {
		c.clients[key] = stuck{server, from, end}
	}
	c.mu.Unlock()
	if known && before.server != server && from.After(before.end) {
		const concurrent = 3 * time.Second
		text := fmt.Sprintf("session affinity: got %s, before %s", server, before.server)
		c.fail(failure{route: r, from: before.from.Add(-concurrent), end: end, affinity: true, text: text})
	}
}

// hold keeps a connection open and uses it from time to time. A lost
// connection is a failure.
func (c *connections) hold(ctx context.Context, r route) {
	const pause = 2 * time.Second
	for ctx.Err() == nil {
		from := time.Now()
		conn, result := lab.Open(ctx, r.from, r.port.Protocol.String(), r.to, lab.ProbeOptions{})
		for conn != nil && result.Outcome == lab.Answered && lab.Sleep(ctx, pause) {
			from = time.Now()
			result = conn.Ask(context.Background())
			c.count("held connections")
		}
		if conn != nil {
			conn.Close()
		}
		if result.Outcome != lab.Answered && ctx.Err() == nil {
			c.fail(failure{route: r, from: from, end: time.Now(), text: fmt.Sprintf("held connection: %v", result)})
		}
	}
}

func (c *connections) fail(f failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures = append(c.failures, f)
}

// take returns the failures so far, and forgets them.
func (c *connections) take() []failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.failures
	c.failures = nil
	return all
}
