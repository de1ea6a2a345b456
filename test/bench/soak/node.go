package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/test/apiserver/random"
	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/lab"
)

// patience is the longest time in which a proxy must follow the API or repair
// its tables.
const patience = 2 * time.Minute

// requestTimeout limits requests to the API server, so that they are repeated.
const requestTimeout = 20 * time.Second

// node is a node with a proxy.
type node struct {
	*lab.Node
	client   *lab.Pod // in which connections begin
	sentinel *random.Sentinel
	dir      string // of its files
	kick     chan struct{}
	problem  func(format string, args ...any)
	config   string // of the proxy

	still   sync.Mutex // held while the sentinel changes
	mu      sync.Mutex // guards the rest
	process *lab.Process
	ending  bool // reports whether the process may end
	known   []confirmation
	latency report.Sample // from the answer of the API to its effect on connections
	// answered is the time of the answer to a change of the sentinel that the
	// proxy has not followed, zero if there is none. writing is the time that
	// all such requests took.
	answered time.Time
	writing  time.Duration
}

// confirmation is a time at which a node has followed all requests that were
// answered before an earlier time.
type confirmation struct{ at, known time.Time }

// has reports whether an address is that of the node or of one of its pods.
func (n *node) has(addr netip.Addr) bool {
	in := func(p netip.Prefix) bool { return p.Contains(addr) }
	return slices.Contains(n.Addrs(), addr) || slices.ContainsFunc(n.PodRanges, in)
}

// file returns a file of the node.
func (n *node) file(name string) string { return filepath.Join(n.dir, n.Name+name) }

// configure writes the configuration file of the proxy.
func (n *node) configure(config string) error {
	n.config = config
	return os.WriteFile(n.file(".conf"), []byte(config), 0o600)
}

// run runs a program with the configuration of the proxy.
func (n *node) run(ctx context.Context, at *lab.Namespace, program, log string) (*lab.Process, error) {
	return at.StartProcess(ctx, lab.ProcessConfig{
		Program: program, Args: []string{"--config=" + n.file(".conf")}, Log: n.file(log),
	})
}

// start starts a proxy.
func (n *node) start(program string) error {
	p, err := n.run(context.Background(), n.Namespace, program, ".log")
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.process, n.ending = p, false
	go func() {
		<-p.Running.Done()
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.process == p && !n.ending {
			n.problem("the proxy of %s ended: %v", n.Name, context.Cause(p.Running))
		}
	}()
	return nil
}

// mayEnd returns the process and permits that it ends.
func (n *node) mayEnd() *lab.Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ending = true
	return n.process
}

// end ends the proxy with a signal.
func (n *node) end(signal syscall.Signal) {
	if p := n.mayEnd(); p != nil {
		p.End(signal)
	}
}

// follow changes the sentinel of the node until ctx ends, and records when the
// proxy has followed.
func (n *node) follow(ctx context.Context) error {
	const pause, poll = time.Second, 10 * time.Millisecond
	for sleep(ctx, poll) {
		if err := n.followOnce(ctx, poll); err != nil {
			continue // no API server
		}
		select {
		case <-ctx.Done():
		case <-n.kick:
		case <-time.After(pause):
		}
	}
	return nil
}

func (n *node) followOnce(ctx context.Context, poll time.Duration) error {
	n.still.Lock()
	defer n.still.Unlock()
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	mark, err := n.sentinel.Change(limited)
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.answered = time.Now()
	n.writing += time.Since(began)
	n.mu.Unlock()
	for mark.Served(ctx, n.Namespace) != nil && sleep(ctx, poll) {
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known = append(n.known, confirmation{time.Now(), began})
	n.latency.Add(time.Since(n.answered))
	n.answered = time.Time{}
	return nil
}

// knownAt returns the time up to which the proxy had followed at another time.
func (n *node) knownAt(at time.Time) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range slices.Backward(n.known) {
		if c.at.Before(at) {
			return c.known
		}
	}
	return time.Time{}
}

// await waits until the proxy has followed a change of the sentinel that began
// after now, and returns how long it took, without the requests.
func (n *node) await(ctx context.Context) (time.Duration, error) {
	from := time.Now()
	_, before := n.requests()
	for sleep(ctx, 5*time.Millisecond) {
		answered, writing := n.requests()
		switch {
		case n.knownAt(time.Now()).After(from):
			return max(0, time.Since(from)-(writing-before)), nil
		case !answered.IsZero() && min(time.Since(answered), time.Since(from)) > patience:
			return 0, fmt.Errorf("the proxy of %s has not followed the API for %s", n.Name, patience)
		case time.Since(from) > 5*patience:
			return 0, fmt.Errorf("changes for %s have not ended after %s", n.Name, 5*patience)
		}
		select {
		case n.kick <- struct{}{}:
		default:
		}
	}
	return 0, context.Cause(ctx)
}

// requests returns when the change of the sentinel was answered that the proxy
// has not followed, and how long all requests took.
func (n *node) requests() (answered time.Time, writing time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.answered, n.writing
}

// possible returns what the node can be, as far as endpoints depend on it. The
// sentinel does not show when a proxy follows changes of its Node.
func (n *node) possible(endpoints []*cluster.Endpoint) (all []*cluster.Node) {
	second := random.SecondServiceRanges()
	for _, zone := range []string{"", "east", "west"} {
		all = append(all, &cluster.Node{
			Name: n.Name, Zone: zone, IPs: n.Addrs(), ServiceCIDRs: slices.Concat(lab.ServiceRanges(), second[:]),
		})
	}
	if !slices.ContainsFunc(endpoints, func(e *cluster.Endpoint) bool { return e.Hints != nil }) {
		all = all[:1]
	}
	return all
}

// sleep waits, and reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err() == nil
}
