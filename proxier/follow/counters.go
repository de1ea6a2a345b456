package follow

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/metric"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// packetCounters collects the counters of packets in the kernel. It reads them
// one by one, because a dump would wait for the end of a transaction.
type packetCounters struct {
	reader   *counterReader
	mu       sync.Mutex // guards the values
	counters []*packetCounter
}

// packetCounter is a counter in the kernel, and its metric.
type packetCounter struct {
	family       nft.Family
	counter      *nft.Counter
	last         lastCount
	total        uint64
	name, help   string
	label, value string // beside that of the family
}

func newPacketCounters(reader *counterReader, families []nft.Family) *packetCounters {
	c := &packetCounters{reader: reader}
	for _, family := range families {
		add := func(counter *nft.Counter, name, help, label, value string) {
			c.counters = append(c.counters, &packetCounter{
				family: family, counter: counter, name: name, help: help, label: label, value: value,
			})
		}
		for _, r := range ruleset.Refusals() {
			name, verb := "nftproxy_dropped_packets_total", "dropped"
			if r.Rejects() {
				name, verb = "nftproxy_rejected_packets_total", "rejected"
			}
			add(r.Counter(), name, "Packets of new connections that were "+verb+", by reason.", "reason", string(r))
		}
		const rejected = "kubeproxy_nftables_localhost_nodeport_rejected_packets_total"
		for _, p := range ruleset.RejectedOnLocalhost() {
			add(ruleset.LocalhostCounter(p), rejected,
				"Packets to UDP and SCTP NodePorts on localhost that were rejected.", "protocol", strings.ToUpper(p.String()))
		}
	}
	return c
}

// collect collects the counters. A counter that cannot be read keeps its last
// value.
func (c *packetCounters) collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.counters {
		if err := c.reader.read(one.update); err != nil {
			klog.V(2).InfoS("Failed to read a counter of packets", "err", err)
		}
		m := metric.Values{Family: one.family, To: ch}
		m.Counter(one.name, one.help, float64(one.total), one.label, one.value)
	}
}

// update reads the counter. It is zero if the table does not have it.
func (c *packetCounter) update(conn *nft.Conn) error {
	found, ok, err := conn.FindCounter(&nft.Table{Family: c.family, Name: ruleset.TableName}, c.counter.Name)
	if ok {
		c.total += c.last.increase(found.Packets)
	}
	return err
}

// counterReader is the connection with which collectors of metrics read
// counters in the kernel. Any goroutine can use it.
type counterReader struct {
	idle
	mu   sync.Mutex
	conn *nft.Conn // nil after close
}

func openCounterReader() (*counterReader, error) {
	conn, err := nft.Open()
	if err != nil {
		return nil, err
	}
	return &counterReader{conn: conn}, nil
}

func (r *counterReader) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		return nil
	}
	err := r.conn.Close()
	r.conn = nil
	return err
}

// read calls f, unless the connection is not open. Only one call runs at a
// time.
func (r *counterReader) read(f func(*nft.Conn) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		return nil
	}
	return f(r.conn)
}

// lastCount is the last value of a counter that can start again at zero:
// another program can reset it or delete the table.
type lastCount uint64

// increase returns the increase since the last call.
func (c *lastCount) increase(now uint64) uint64 {
	before := uint64(*c)
	*c = lastCount(now)
	if now < before {
		return now
	}
	return now - before
}
