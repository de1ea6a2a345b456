package follow

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/metric"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

var serviceConnectionsDesc = prometheus.NewDesc("nftproxy_service_connections_total",
	"New connections to a service port. A connection without an answer is counted with each attempt of the client.",
	[]string{metric.FamilyLabel, "namespace", "service", "port", "protocol"}, nil)

// serviceConnections collects the numbers of new connections to the service
// ports of one address family, which rows of the table count. A number never
// decreases while the service port is counted.
type serviceConnections struct {
	idle
	reader *counterReader
	rules  *ruleset.Ruleset // only for the loop of the family

	mu    sync.Mutex // guards ports, and the numbers
	ports map[portKey]*portConnections
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
	s := &serviceConnections{reader: reader, rules: rules, ports: make(map[portKey]*portConnections)}
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
	before := p.frontends
	p.frontends = nil
	for _, row := range rows {
		frontend := &frontendConnections{port: p, row: row}
		if i := slices.IndexFunc(before, func(f *frontendConnections) bool { return f.row == row }); i >= 0 {
			frontend = before[i]
		}
		p.frontends = append(p.frontends, frontend)
	}
}

// collect collects the numbers. A row that cannot be read keeps its last one.
func (s *serviceConnections) collect(ch chan<- prometheus.Metric) {
	if err := s.reader.read(s.read); err != nil {
		klog.V(2).InfoS("Failed to read the connections to Services", "err", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.ports {
		ch <- prometheus.MustNewConstMetric(
			serviceConnectionsDesc, prometheus.CounterValue, float64(p.total), p.labels...)
	}
}

// readRows is the number of rows that are read at a time.
const readRows = 512

// read reads the numbers of all rows by key. A dump of the set would take
// quadratic time.
func (s *serviceConnections) read(conn *nft.Conn) error {
	for _, frontends := range s.bySet() {
		for some := range slices.Chunk(frontends, readRows) {
			if found, err := s.readSome(conn, some); err != nil || !found {
				return err // without the set, each row would be a request
			}
		}
	}
	return nil
}

// bySet returns the frontends by the name of the set with their rows.
func (s *serviceConnections) bySet() map[string][]*frontendConnections {
	s.mu.Lock()
	defer s.mu.Unlock()
	sets := make(map[string][]*frontendConnections)
	for _, p := range s.ports {
		for _, f := range p.frontends {
			sets[f.row.Set.Name] = append(sets[f.row.Set.Name], f)
		}
	}
	return sets
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
