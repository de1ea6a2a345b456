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

// packetCounters collects the counters of packets in the table of an address
// family. It reads them one by one, because a dump would wait for the end of a
// transaction.
type packetCounters struct {
	family nft.Family
	reader *counterReader
	mu     sync.Mutex // guards counts
	counts map[string]packetCount
}

// packetCount is the number of packets that a counter has counted.
type packetCount struct {
	last  lastCount
	total uint64
}

func newPacketCounters(family nft.Family, reader *counterReader) *packetCounters {
	return &packetCounters{family: family, reader: reader, counts: make(map[string]packetCount)}
}

// collect collects the counters.
func (c *packetCounters) collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := metric.Values{Family: c.family, To: ch}
	for _, reason := range ruleset.Refusals() {
		name, help := "nftproxy_dropped_packets_total", "Packets of new connections that were dropped, by reason."
		if reason.Rejects() {
			name, help = "nftproxy_rejected_packets_total", "Packets of new connections that were rejected, by reason."
		}
		m.Counter(name, help, c.read(reason.Counter()), "reason", string(reason))
	}
	for protocol, counter := range ruleset.LocalhostCounters() {
		m.Counter("kubeproxy_nftables_localhost_nodeport_rejected_packets_total",
			"Packets to NodePorts on localhost that were rejected.",
			c.read(counter), "protocol", strings.ToUpper(protocol.String()))
	}
}

// read returns the number of packets that a counter has counted: none if the
// table does not have it. A counter that cannot be read keeps its last number.
func (c *packetCounters) read(counter *nft.Counter) float64 {
	count := c.counts[counter.Name]
	err := c.reader.read(func(conn *nft.Conn) error {
		now, ok, err := conn.FindCounter(&nft.Table{Family: c.family, Name: ruleset.TableName}, counter.Name)
		if ok {
			count.total += count.last.increase(now.Packets)
		}
		return err
	})
	if err != nil {
		klog.V(2).InfoS("Failed to read a counter of packets", "err", err)
	}
	c.counts[counter.Name] = count
	return float64(count.total)
}

// counterReader is the connection with which collectors of metrics read
// counters in the kernel. Any goroutine can use it.
type counterReader struct {
	idle
	mu   sync.Mutex
	conn *nft.Conn // nil after close
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
