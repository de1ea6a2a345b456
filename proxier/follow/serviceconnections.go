package follow

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/metric"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/share"
	"github.com/nftproxy/nftproxy/proxier/table"
)

var serviceConnectionsDesc = prometheus.NewDesc("nftproxy_service_connections_total",
	"New connections to a service port. A connection without an answer is counted with each attempt of the client.",
	[]string{metric.FamilyLabel, "namespace", "service", "port", "protocol"}, nil)

// maxConnectionRows limits the rows of an address family that are read for each
// scrape, and so the number of series. All have enough with 10,000 Services of
// two ports with three frontends. 65,536 rows take 0.3 s.
const maxConnectionRows = 1 << 16

// serviceConnections collects the numbers of new connections to the service
// ports of one address family, which rows of the table count. A number never
// decreases while the service port is counted.
type serviceConnections struct {
	idle
	reader *counterReader
	rules  *ruleset.Ruleset // only for the loop of the family
	max    int              // maxConnectionRows

	mu    sync.Mutex // guards all below, and the numbers
	ports map[portKey]*portConnections
	// leftOut is the number of service ports without a series in the last
	// scrape.
	leftOut int
}

// portConnections are the connections to a service port.
type portConnections struct {
	labels    []string // values of the labels of the metric
	frontends []*frontendConnections
	total     uint64 // also of frontends that the service port no longer has
}

// frontendConnections are the connections to a frontend, which a row counts.
type frontendConnections struct {
	port *portConnections
	row  nft.Row
	last lastCount
}

func newServiceConnections(config *Config, reader *counterReader, f nft.Family) (*serviceConnections, error) {
	rules, err := ruleset.New(config.Rules, f)
	s := &serviceConnections{
		reader: reader, rules: rules, max: maxConnectionRows, ports: make(map[portKey]*portConnections),
	}
	config.Metrics.Add(s.collect)
	return s, err
}

// committed makes the service ports of a commit those that are counted.
func (s *serviceConnections) committed(c *table.Commit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, change := range c.Changes {
		plan := cmp.Or(change.After, change.Before)
		if plan == nil {
			continue
		}
		key := keyOf(c.Family, plan)
		rows := s.rules.ConnectionRows(change.After)
		if len(rows) == 0 {
			delete(s.ports, key)
			continue
		}
		port := s.ports[key]
		if port == nil {
			port = &portConnections{}
		}
		port.labels = labelsOf(s.rules.Family(), plan)
		port.setRows(rows)
		s.ports[key] = port
	}
}

// labelsOf returns the values of the labels of a service port. A port without a
// name has its number.
func labelsOf(f nft.Family, p *ruleset.Plan) []string {
	port := cmp.Or(p.Port.Name, strconv.Itoa(int(p.Port.Port)))
	protocol := strings.ToUpper(p.Port.Protocol.String())
	return []string{f.Name(), p.Service.Name.Namespace, p.Service.Name.Name, port, protocol}
}

// setRows makes these the rows that count the connections. Those that stay keep
// their numbers.
func (p *portConnections) setRows(rows []nft.Row) {
	before, now := p.frontends, make([]*frontendConnections, len(rows))
	p.frontends = now
	for len(before) > 0 && len(rows) > 0 && before[0].row == rows[0] { // most changes have few rows
		now[0] = before[0]
		before, now, rows = before[1:], now[1:], rows[1:]
	}
	for b, n := len(before)-1, len(rows)-1; b >= 0 && n >= 0 && before[b].row == rows[n]; b, n = b-1, n-1 {
		now[n] = before[b]
		before, now, rows = before[:b], now[:n], rows[:n]
	}
	known := make(map[nft.Tuple]*frontendConnections, len(before)) // the sets have different keys
	for _, f := range before {
		known[f.row.Key] = f
	}
	for i, row := range rows {
		if now[i] = known[row.Key]; now[i] == nil || now[i].row != row {
			now[i] = &frontendConnections{port: p, row: row}
		}
	}
}

// collect collects the numbers. A row that cannot be read keeps its last one.
func (s *serviceConnections) collect(ch chan<- prometheus.Metric) {
	ports, leftOut := s.counted()
	if err := s.reader.read(func(conn *nft.Conn) error { return s.read(conn, ports) }); err != nil {
		klog.V(2).InfoS("Failed to read the connections to Services", "err", err)
	}
	s.report(leftOut)
	m := metric.Values{Family: s.rules.Family(), To: ch}
	m.Gauge("nftproxy_uncounted_service_ports",
		"Service ports whose connections are not counted, because their namespace has too many.", float64(leftOut))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range ports {
		ch <- prometheus.MustNewConstMetric(
			serviceConnectionsDesc, prometheus.CounterValue, float64(p.number.total), p.labels...)
	}
}

// countedPort is a portConnections at the time of a scrape.
type countedPort struct {
	number    *portConnections
	labels    []string
	frontends []*frontendConnections
}

// counted returns the service ports that get a series, and the number of those
// that are left out. If there are too many rows, each namespace has an equal
// share, for its service ports in the order of their names. So all nodes count
// the same ones, and a restart changes nothing.
func (s *serviceConnections) counted() (ports []countedPort, leftOut int) {
	namespaces, rows := s.byNamespace()
	part := share.Part(s.max, slices.Collect(maps.Values(rows)))
	for namespace, all := range namespaces {
		left := part
		if rows[namespace] > part {
			slices.SortFunc(all, func(a, b countedPort) int { return slices.Compare(a.labels, b.labels) })
		}
		for _, p := range all {
			if len(p.frontends) > left {
				leftOut++
				continue
			}
			left -= len(p.frontends)
			ports = append(ports, p)
		}
	}
	return ports, leftOut
}

// byNamespace returns the service ports and the number of their rows.
func (s *serviceConnections) byNamespace() (ports map[string][]countedPort, rows map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ports, rows = make(map[string][]countedPort), make(map[string]int)
	for key, p := range s.ports {
		namespace := key.Namespace
		ports[namespace] = append(ports[namespace], countedPort{p, p.labels, p.frontends})
		rows[namespace] += len(p.frontends)
	}
	return ports, rows
}

// report logs that service ports are left out, once until none is.
func (s *serviceConnections) report(leftOut int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if leftOut > 0 && s.leftOut == 0 {
		klog.InfoS("Too many addresses of Services are counted: some service ports have no number of connections",
			"ipFamily", s.rules.Family().Name(), "servicePorts", leftOut, "limit", s.max)
	}
	s.leftOut = leftOut
}

// readRows is the number of rows that are read at a time.
const readRows = 512

// read reads the numbers of the rows of service ports by key. A dump of the set
// would take quadratic time.
func (s *serviceConnections) read(conn *nft.Conn, ports []countedPort) error {
	sets := make(map[string][]*frontendConnections)
	for _, p := range ports {
		for _, f := range p.frontends {
			sets[f.row.Set.Name] = append(sets[f.row.Set.Name], f)
		}
	}
	for _, frontends := range sets {
		for some := range slices.Chunk(frontends, readRows) {
			if found, err := s.readSome(conn, some); err != nil || !found {
				return err // without the set, each row would be a request
			}
		}
	}
	return nil
}

// readSome reads the numbers of rows of one set. It reports whether the kernel
// has any of them.
func (s *serviceConnections) readSome(conn *nft.Conn, frontends []*frontendConnections) (any bool, err error) {
	rows := make([]nft.Row, len(frontends))
	for i, f := range frontends {
		rows[i] = f.row
	}
	found, err := conn.FindRows(&nft.Table{Family: s.rules.Family(), Name: ruleset.TableName}, rows)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range found {
		if r.Set != nil && r.Matches(rows[i]) { // not the row of another owner
			frontends[i].port.total += frontends[i].last.increase(r.Packets)
			any = true
		}
	}
	return any, nil
}
