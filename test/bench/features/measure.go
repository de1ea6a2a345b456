package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// The figures of a feature at one size. Changes are made to a Service that uses
// the feature, and then to a plain one.
const (
	start      = "start"
	restart    = "restart"
	added      = "endpoint added"
	replaced   = "endpoint replaced"
	removed    = "endpoint removed"
	plain      = "plain Service: "
	heapInUse  = "Go heap in use"
	peakMemory = "peak RSS"
)

// figureNames returns the names of all figures in the order of the table.
func figureNames() []string {
	return []string{
		start, restart, added, replaced, removed, plain + added, plain + replaced, plain + removed,
		heapInUse, peakMemory,
	}
}

// sample is one measured value.
type sample struct {
	Name string
	// Seconds is the time of Sync and of the calls that precede it, and
	// KernelSeconds that of its transactions.
	Seconds, KernelSeconds float64
	// StaleFlowSeconds is the time for cleaning stale flows after a sync.
	StaleFlowSeconds float64
	Bytes            float64
	Transactions     int
}

// childOptions is what a child measures: one feature at one size.
type childOptions struct {
	Feature     string
	Size, Tries int
	Budget      time.Duration // of all changes of a Service
}

// measurement is the work of a child.
type measurement struct {
	childOptions
	feature *feature
	subject subject
	work    *workload
	handed  time.Duration // in calls since the last sync
	out     *json.Encoder
}

// measure prints each value as a line of JSON. The network namespace must be
// empty.
func (o childOptions) measure() error {
	debug.SetGCPercent(20) // as the command does
	f := featureOf(o.Feature)
	if err := setUpNamespace(f); err != nil {
		return err
	}
	m := &measurement{childOptions: o, feature: f, work: newWorkload(f, o.Size), out: json.NewEncoder(os.Stdout)}
	if err := m.start(start); err != nil {
		return err
	}
	if err := m.subject.Close(); err != nil {
		return err
	}
	m.subject = nil
	debug.FreeOSMemory()
	if err := m.start(restart); err != nil {
		return err
	}
	defer m.subject.Close()
	if err := m.heap(); err != nil {
		return err
	}
	services := m.work.services
	if err := m.changes("", services[(len(services)-1)/2]); err != nil {
		return err
	}
	return m.changes(plain, services[len(services)-1])
}

// setUpNamespace sets up the loopback interface, with the addresses that
// NodePorts listen on.
func setUpNamespace(f *feature) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set up loopback: %w", err)
	}
	if !f.staleFlows {
		return nil
	}
	for i := range nodePortAddresses {
		ip := &net.IPNet{IP: address(nft.IPv4, nodeIPs, i).AsSlice(), Mask: net.CIDRMask(32, 32)}
		if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: ip}); err != nil {
			return fmt.Errorf("add address %v: %w", ip, err)
		}
	}
	return nil
}

// SetService implements receiver, and measures the time of the call.
func (m *measurement) SetService(svc *cluster.Service) {
	begin := time.Now()
	m.subject.SetService(svc)
	m.handed += time.Since(begin)
}

// SetEndpoints implements receiver, and measures the time of the call.
func (m *measurement) SetEndpoints(name cluster.ServiceName, source string, endpoints []*cluster.Endpoint) {
	begin := time.Now()
	m.subject.SetEndpoints(name, source, endpoints)
	m.handed += time.Since(begin)
}

// start measures the setup and the first sync of a new subject.
func (m *measurement) start(name string) (err error) {
	begin := time.Now()
	if m.subject, err = newSubject(m.feature); err != nil {
		return err
	}
	m.handed = time.Since(begin)
	m.work.handOver(m)
	return m.sync(name, name == start)
}

// changes measures changes of a Service until there were enough of them, or
// until they took too long.
func (m *measurement) changes(prefix string, s *service) error {
	begin := time.Now()
	for range m.Tries {
		more, other := m.work.next(), m.work.next()
		for _, step := range []struct {
			name   string
			change func() int
		}{
			{added, func() int { return s.add(more) }},
			{replaced, func() int { return s.replace(s.victim, other) }},
			{removed, func() int { return s.remove(other) }},
		} {
			s.handOver(m, step.change())
			if err := m.sync(prefix+step.name, true); err != nil {
				return err
			}
		}
		s.victim = more
		if time.Since(begin) > m.Budget {
			break
		}
	}
	return nil
}

// sync measures a sync of what was handed over.
func (m *measurement) sync(name string, mustWrite bool) error {
	c, err := m.subject.sync()
	if err == nil && mustWrite && c.Transactions == 0 {
		err = errors.New("the sync wrote nothing")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	c.Name, c.Seconds = name, c.Seconds+m.handed.Seconds()
	m.handed = 0
	return m.out.Encode(c)
}

// heap measures the heap in use at rest.
func (m *measurement) heap() error {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC() // frees what has finalizers
	runtime.ReadMemStats(&stats)
	return m.out.Encode(sample{Name: heapInUse, Bytes: float64(stats.HeapInuse)})
}
