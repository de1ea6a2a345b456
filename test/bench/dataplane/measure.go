package main

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/bench/report"
	"github.com/nftproxy/nftproxy/test/lab"
)

// operation makes a connection or a request and returns how long that took.
type operation func() (time.Duration, error)

// warmUp is the number of connections or requests that are made before the
// first one that is measured. They load the rules into the processor's
// caches.
const warmUp = 20

// latencies makes n connections or requests on the last processor, and returns
// the time of each.
func (s *subject) latencies(c scenario, n int) (report.Sample, error) {
	all := make(report.Sample, 0, n)
	err := s.run(c, warmUp+n, 1, func(_ int, one operation) error {
		for i := range warmUp + n {
			took, err := one()
			if err != nil {
				return err
			}
			if i >= warmUp {
				all.Add(took)
			}
		}
		return nil
	})
	return all, err
}

// perSecond returns the rate at which connections are made on all processors
// for that time. Requests over an established flow are made by one thread.
func (s *subject) perSecond(c scenario, d time.Duration) (float64, error) {
	workers := runtime.NumCPU()
	if c.established {
		workers = 1 // more would compete for the server's socket
	}
	rates := make(report.Sample, workers)
	err := s.run(c, 0, workers, func(worker int, one operation) error {
		began, n := time.Now(), 0
		for ; time.Since(began) < d && n < ports/workers; n++ {
			if _, err := one(); err != nil {
				return err
			}
		}
		rates[worker] = float64(n) / time.Since(began).Seconds()
		return nil
	})
	return rates.Mean() * float64(workers), err
}

// run calls f in that many threads, each on its own processor, with the
// operation to measure. All threads begin together and share a server. The
// flows are removed afterwards. See sources for connections.
func (s *subject) run(c scenario, connections, workers int, f func(worker int, one operation) error) error {
	var first *server
	if err := s.place.server.Do(func() (err error) { first, err = listen(c.kind); return err }); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	defer first.close()
	from, addrs := s.place.node, nodeClients
	if c.path == fromPod {
		from, addrs = s.place.pod, podClients
	}
	sources, to := s.sources(addrs, c.clients, connections), c.to.address(s.many, s.variant.rules)
	errs := make([]error, workers)
	var ready, done sync.WaitGroup
	ready.Add(workers)
	for worker := range workers {
		done.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread is pinned to a processor, and ends with the goroutine
			begin := sync.OnceFunc(ready.Done)
			defer begin()
			errs[worker] = from.Do(func() error {
				if err := seclude(worker); err != nil {
					return err
				}
				client := newClient(sources, to, newServer(first.socket))
				client.made = worker * ports / workers
				defer func() { s.late.Add(int64(client.late)) }()
				begin()
				ready.Wait()
				return client.operate(c.traffic, func(one operation) error { return f(worker, one) })
			})
		})
	}
	done.Wait()
	flush := func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) }
	return errors.Join(append(errs, s.place.node.Do(flush))...)
}

// operate calls f with the operation to measure.
func (c *client) operate(t traffic, f func(operation) error) error {
	switch {
	case t.established:
		_, err := c.overFlow(t.kind, f)
		return err
	case t.kind == unix.SOCK_DGRAM:
		return f(func() (time.Duration, error) { return c.overFlow(unix.SOCK_DGRAM, nil) })
	default:
		return f(c.connectTCP)
	}
}

// seclude pins the thread to a processor, counted from the last one, and blocks
// signals: Go's scheduler sends some, which would interrupt system calls.
func seclude(n int) error {
	var processors unix.CPUSet
	processors.Set(runtime.NumCPU() - 1 - n)
	if err := unix.SchedSetaffinity(0, &processors); err != nil {
		return fmt.Errorf("pin thread: %w", err)
	}
	var signals unix.Sigset_t
	for i := range signals.Val {
		signals.Val[i] = math.MaxUint64
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &signals, nil); err != nil {
		return fmt.Errorf("block signals: %w", err)
	}
	return nil
}

// subject is one instance of a variant: a place whose node has its rules.
type subject struct {
	variant  variant
	instance int
	many     int // Services; one of them is the plain TCP Service
	place    *place
	fresh    int // new clients so far
	late     atomic.Int64
}

func (s *subject) proxied() bool { return s.variant.services > 0 }

// introduce connects the known clients.
func (s *subject) introduce() error {
	if !s.proxied() {
		return nil
	}
	for _, path := range []string{fromNode, fromPod} {
		if _, err := s.latencies(scenario{path, knownClient}, knownClients); err != nil {
			return err
		}
	}
	return nil
}

// sources returns the addresses of a number of known clients, which connect in
// turn. If it is 0, it returns one of a new client for each connection.
func (s *subject) sources(all netip.Prefix, known, connections int) (addrs []netip.Addr) {
	first, n := 1, known
	if n == 0 {
		first, n = 1+knownClients+s.fresh, connections
		s.fresh += n
	}
	for i := range n {
		addrs = append(addrs, lab.AddrIn(all, first+i))
	}
	return addrs
}

// The ranges of addresses. All but the one of Services are in
// stage.ClusterCIDR, and none is in lab.PodRanges.
var (
	serviceRange  = lab.ServiceRanges()[0]
	endpointRange = netip.MustParsePrefix("10.128.0.0/10") // of the server
	nodeClients   = netip.MustParsePrefix("10.208.0.0/13") // of the node
	podClients    = netip.MustParsePrefix("10.216.0.0/13") // of the pod
	clients       = netip.MustParsePrefix("10.208.0.0/12") // of both
)

// place is a node with a pod and a server.
type place struct{ node, pod, server *lab.Namespace }

// newPlace adds a pod and a server to a node, and connects the three.
func newPlace(l *lab.Lab, node *lab.Pod) (*place, error) {
	pod, errPod := l.Node2.AddPod(node.Name + "-pod")
	server, errServer := l.Node2.AddPod(node.Name + "-server")
	if err := errors.Join(errPod, errServer); err != nil {
		return nil, err
	}
	p := &place{node: node.Namespace, pod: pod.Namespace, server: server.Namespace}
	served := []netip.Prefix{endpointRange, serviceRange, balancerRange}
	err := errors.Join(
		p.node.SetSysctl("net.ipv4.ip_forward", "1"),
		p.server.Own(endpointRange), p.node.Own(nodeClients), p.pod.Own(podClients),
		lab.Wire(p.node, p.server, "to-node", "to-server", served, []netip.Prefix{clients}),
		lab.Wire(p.node, p.pod, "to-node", "to-pod", []netip.Prefix{podClients}, served))
	if err != nil {
		return nil, fmt.Errorf("links of %s: %w", node.Name, err)
	}
	return p, nil
}
