package main

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/lab"
)

// task is what clients do in one measurement.
type task struct {
	udp     bool
	from    *lab.Namespace
	sources []netip.Addr // in turn
	to      netip.AddrPort
	server  *lab.Namespace
	node    *lab.Namespace // whose flows are forgotten afterwards
}

// warmUp is after how many connections the rules are in the processor's caches again.
const warmUp = 20

// latencies makes that many connections on the last processor, and returns how long each took.
func (t *task) latencies(n int) ([]time.Duration, error) {
	all := make([]time.Duration, 0, n)
	err := t.run(1, func(_ int, one func() (time.Duration, error)) error {
		for i := range warmUp + n {
			took, err := one()
			if err != nil {
				return err
			}
			if i >= warmUp {
				all = append(all, took)
			}
		}
		return nil
	})
	return all, err
}

// perSecond makes connections on all processors for that time, and returns how many came to pass in a second.
func (t *task) perSecond(d time.Duration) (float64, error) {
	workers := runtime.NumCPU()
	rates := make([]float64, workers)
	err := t.run(workers, func(worker int, one func() (time.Duration, error)) error {
		began, n := time.Now(), 0
		for ; time.Since(began) < d && n < ports/workers; n++ {
			if _, err := one(); err != nil {
				return err
			}
		}
		rates[worker] = float64(n) / time.Since(began).Seconds()
		return nil
	})
	var sum float64
	for _, rate := range rates {
		sum += rate
	}
	return sum, err
}

// run calls f on threads of their own, each on a processor of its own, with a function that makes a connection. All begin together, and share
// a server.
func (t *task) run(workers int, f func(worker int, one func() (time.Duration, error)) error) error {
	kind := uintptr(unix.SOCK_STREAM)
	if t.udp {
		kind = unix.SOCK_DGRAM
	}
	var first *server
	if err := t.server.Do(func() (err error) { first, err = listen(kind); return err }); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	defer first.close()
	errs := make([]error, workers)
	var ready, done sync.WaitGroup
	ready.Add(workers)
	for worker := range workers {
		done.Go(func() {
			runtime.LockOSThread() // for good: the thread ends with the goroutine, as nobody else wants it on this processor
			begin := sync.OnceFunc(ready.Done)
			defer begin()
			errs[worker] = t.from.Do(func() error {
				if err := seclude(worker); err != nil {
					return err
				}
				client := newClient(t.sources, t.to, first.share())
				client.made = worker * ports / workers
				one := client.connectTCP
				if t.udp {
					one = client.exchangeUDP
				}
				begin()
				ready.Wait()
				return f(worker, one)
			})
		})
	}
	done.Wait()
	return errors.Join(append(errs, forgetFlows(t.node))...)
}

// seclude keeps the thread on a processor, counted from the last one, and signals from the thread: Go's scheduler sends some, and they would
// interrupt system calls.
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
