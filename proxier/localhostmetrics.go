package proxier

import (
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/localhost"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Metrics of NodePorts on localhost (KEP-6032).
var (
	localhostListeners = prometheus.NewDesc("kubeproxy_nftables_localhost_nodeport_listeners",
		"TCP NodePorts that are open on localhost.", []string{labelFamily}, nil)
	localhostFailures = prometheus.NewDesc("kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total",
		"Failures to open a TCP NodePort on localhost.", []string{labelFamily}, nil)
	localhostRejected = prometheus.NewDesc("kubeproxy_nftables_localhost_nodeport_rejected_packets_total",
		"Packets to UDP and SCTP NodePorts on localhost that were rejected.", []string{labelFamily, "protocol"}, nil)
)

// localhostMetrics collects the metrics of NodePorts on localhost. They are
// zero if there are none.
type localhostMetrics struct{ *Proxier }

// Describe implements prometheus.Collector.
func (m localhostMetrics) Describe(ch chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(m, ch)
}

// Collect implements prometheus.Collector.
func (m localhostMetrics) Collect(ch chan<- prometheus.Metric) {
	for _, f := range m.families {
		var stats localhost.Stats
		if f.localhost != nil {
			stats = f.localhost.server.Stats()
		}
		family := apiFamily(f.table.Family())
		ch <- prometheus.MustNewConstMetric(
			localhostListeners, prometheus.GaugeValue, float64(stats.Listeners), family)
		ch <- prometheus.MustNewConstMetric(
			localhostFailures, prometheus.CounterValue, float64(stats.Failures), family)
	}
	for key, n := range m.rejected.read() {
		ch <- prometheus.MustNewConstMetric(localhostRejected, prometheus.CounterValue, float64(n),
			apiFamily(key.family), strings.ToUpper(key.protocol.String()))
	}
}

// rejectedPackets reads the counters of packets that localhost rejects.
type rejectedPackets struct {
	active bool // there are NodePorts on localhost

	mu       sync.Mutex // guards the fields below
	conn     *nft.Conn  // nil while it is not open
	counters map[rejectedCounter]*monotonic
}

// rejectedCounter identifies a counter in the kernel.
type rejectedCounter struct {
	family   nft.Family
	protocol cluster.Protocol
}

// monotonic is the value of a counter that can start again at zero: another
// program can reset it or delete the table.
type monotonic struct{ total, last uint64 }

// observe adds the increase since the last call.
func (m *monotonic) observe(now uint64) {
	if now < m.last {
		m.last = 0
	}
	m.total += now - m.last
	m.last = now
}

func newRejectedPackets(families []*family) *rejectedPackets {
	r := &rejectedPackets{counters: make(map[rejectedCounter]*monotonic)}
	for _, f := range families {
		r.active = r.active || f.localhost != nil
		for _, protocol := range ruleset.RejectedOnLocalhost() {
			r.counters[rejectedCounter{f.table.Family(), protocol}] = new(monotonic)
		}
	}
	return r
}

// open connects to nf_tables in the network namespace of the calling thread,
// if there is a counter to read.
func (r *rejectedPackets) open() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.active {
		r.conn, err = nft.Open()
	}
	return err
}

func (r *rejectedPackets) close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.conn == nil {
		return nil
	}
	err := r.conn.Close()
	r.conn = nil
	return err
}

// read returns the numbers of rejected packets. A counter that cannot be read
// keeps its last value.
func (r *rejectedPackets) read() map[rejectedCounter]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	totals := make(map[rejectedCounter]uint64)
	for key, value := range r.counters {
		if err := r.readOne(key, value); err != nil {
			klog.V(2).InfoS("Failed to read a counter of rejected packets", "err", err)
		}
		totals[key] = value.total
	}
	return totals
}

func (r *rejectedPackets) readOne(key rejectedCounter, value *monotonic) error {
	if r.conn == nil {
		return nil
	}
	table := &nft.Table{Family: key.family, Name: ruleset.TableName}
	found, ok, err := r.conn.FindCounter(table, ruleset.LocalhostCounter(key.protocol).Name)
	if ok {
		value.observe(found.Packets)
	}
	return err
}
