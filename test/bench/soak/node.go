package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
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
	problem  func(format string, args ...any)
	config   string       // of the proxy
	process  *lab.Process // nil before the first start

	still   sync.Mutex   // held while the sentinel changes
	writing atomic.Int64 // time of all requests that changed it, in nanoseconds

	mu      sync.Mutex // guards the rest
	known   []confirmation
	latency report.Sample // from the answer of the API to its effect on connections
}

// confirmation is a time at which a node has followed all requests that were
// answered before an earlier time.
type confirmation struct{ at, known time.Time }

// has reports whether an address belongs to the node or to one of its pods.
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
func (n *node) run(at *lab.Namespace, program, log string, ended func(error)) (*lab.Process, error) {
	return at.StartProcess(context.Background(), lab.ProcessConfig{
		Program: program, Args: []string{"--config=" + n.file(".conf")}, Log: n.file(log), Ended: ended,
	})
}

// start starts a proxy.
func (n *node) start(program string) (err error) {
	n.process, err = n.run(n.Namespace, program, ".log", func(err error) {
		n.problem("the proxy of %s ended: %v", n.Name, err)
	})
	return err
}

const poll = 10 * time.Millisecond

// follow changes the sentinel of the node until ctx ends, and records when the
// proxy has followed.
func (n *node) follow(ctx context.Context) error {
	for pause := poll; sleep(ctx, pause); {
		answered, err := n.followOnce(ctx)
		if err != nil {
			return err
		}
		if pause = poll; answered {
			pause = time.Second
		}
	}
	return nil
}

// followOnce changes the sentinel and waits until the proxy has followed. It
// reports whether the API server answered.
func (n *node) followOnce(ctx context.Context) (answered bool, err error) {
	n.still.Lock()
	defer n.still.Unlock()
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	mark, err := n.sentinel.Change(limited)
	if err != nil {
		return false, nil
	}
	from := time.Now()
	n.writing.Add(int64(from.Sub(began)))
	for mark.Served(ctx, n.Namespace) != nil && sleep(ctx, poll) {
		if time.Since(from) > patience {
			return true, fmt.Errorf("the proxy of %s has not followed the API for %s", n.Name, patience)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known = append(n.known, confirmation{time.Now(), began})
	n.latency.Add(time.Since(from))
	return true, nil
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
	const limit = 5 * patience
	from, before := time.Now(), n.writing.Load()
	for sleep(ctx, poll) {
		answered, err := n.followOnce(ctx)
		switch {
		case err != nil:
			return 0, err
		case answered:
			return max(0, time.Since(from)-time.Duration(n.writing.Load()-before)), nil
		case time.Since(from) > limit:
			return 0, fmt.Errorf("changes for %s have not ended after %s", n.Name, limit)
		}
	}
	return 0, context.Cause(ctx)
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
