package follow

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/metric"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/translate"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/script"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// story is the state of a script: an IPv4 table of node1, with followers whose
// servers and cleaners record calls. These are its steps, besides the standard
// ones:
//
//	start NODEPORTS [count]        creates the table
//	apply FILE                     sets the Services of a file
//	delete SERVICE…                deletes Services of the namespace ns
//	slice NAME SERVICE ENDPOINT…   sets or deletes an EndpointSlice
//	node ADDRESS…                  sets the addresses of the node
//	sync, check, rewrite           commits changes, and restores the table
//	pass DURATION                  time passes
//	flows, attempts, checks, ports, resets  prints the calls since the last time
//	hold, serves FRONTEND, release connections that are being reset
//	missing                        prints the number of missing endpoints
//	metrics NAME…                  prints metrics
//	commit PLAN                    commits a plan (see planOf), without the table, and prints the events
type story struct {
	recorded
	t        testing.TB
	table    *table.Table
	metrics  *metric.Set
	resets   *staleConnections
	services map[cluster.ServiceName]*cluster.Service
	slices   map[string]*translate.EndpointSlice
	plan     *ruleset.Plan // of the last commit
	events   tabletest.Events
	balance  *balanceEvents
	ejected  *ejectionEvents
}

func TestScripts(t *testing.T) {
	setup := func(e *script.Env) (map[string]script.Command, error) {
		s := newStory(e.T)
		return script.Steps(map[string]any{
			"start": s.start, "apply": s.apply, "delete": s.delete, "slice": s.slice, "node": s.node,
			"sync": func() { tabletest.Sync(s.t, s.table) }, "rewrite": s.rewrite, "check": s.check,
			"metrics": s.showMetrics,
			"pass":    func(d time.Duration) { time.Sleep(d); synctest.Wait() },
			"flows":   s.take(&s.udp), "attempts": s.take(&s.attempts), "checks": s.take(&s.checks),
			"ports": s.take(&s.ports), "resets": s.take(&s.removals), "missing": s.missing,
			"hold": s.setHold, "release": s.release, "serves": s.serves, "commit": s.commit,
		}), nil
	}
	script.Run(t, script.Suite{Namespace: true, FakeClock: true, Setup: setup})
}

func newStory(t testing.TB) *story {
	s := &story{
		t: t, metrics: metric.NewSet(nft.IPv4), services: make(map[cluster.ServiceName]*cluster.Service),
		slices: make(map[string]*translate.EndpointSlice),
	}
	local := map[nft.Family]*localhostPorts{nft.IPv4: {server: &portServer{r: &s.recorded}}}
	s.balance = newBalanceEvents(&s.events)
	ejections := metric.NewSet().FamilyCounter("test", "")
	s.ejected = newEjectionEvents(&Config{NodeName: "n1", Events: &s.events}, ejections, nft.IPv4)
	s.resets = newStaleConnections(&Config{Metrics: s.metrics}, nil, local)
	s.resets.cleaner = &cleaner{r: &s.recorded}
	ctx, cancel := context.WithCancel(context.Background())
	go s.resets.run(ctx)
	synctest.Wait()
	t.Cleanup(func() {
		cancel()
		synctest.Wait()
	})
	return s
}

// start creates the table: NODEPORTS [count]. NODEPORTS are a CIDR with the
// addresses of NodePorts, or primary for the default. In 127.0.0.0/8, NodePorts
// are served on localhost. With the word count, the table counts connections to
// Services.
func (s *story) start(nodePorts string, count ...string) error {
	rules := tabletest.Rules()
	rules.NodePortAddresses = ruleset.NodePortAddresses{}
	if nodePorts != "primary" {
		rules.NodePortAddresses.CIDRs = tabletest.Prefixes(nodePorts)
	}
	rules.LocalhostNodePorts = strings.HasPrefix(nodePorts, "127.")
	all := []follower{
		&healthChecks{server: &healthServerCalls{r: &s.recorded}}, &localhostPorts{server: &portServer{r: &s.recorded}},
		s.staleFlows(&s.udp, cluster.UDP), s.staleFlows(&s.attempts, cluster.TCP, cluster.SCTP), s.resets,
	}
	reader := &counterReader{conn: nstest.Open(s.t)}
	s.metrics.Add(newPacketCounters(nft.IPv4, reader).collect)
	if len(count) > 0 {
		rules.ServiceMetrics = ruleset.ServiceMetricsAll
		counted, err := newServiceConnections(&Config{Rules: rules, Metrics: s.metrics}, reader, nft.IPv4)
		if err != nil {
			return err
		}
		all = append(all, counted)
	}
	config := table.Config{Rules: rules, Events: new(tabletest.Events), Observer: observe(all)}
	tables, err := table.New(config, nft.IPv4)
	if err != nil {
		return err
	}
	s.table = tables[0]
	s.t.Cleanup(func() { s.table.Close() })
	return s.table.Setup()
}

// observe returns an observer that passes commits to followers.
func observe(all []follower) table.Observer {
	return func(_ nft.Family, e table.Event) {
		if c, ok := e.(*table.Commit); ok {
			for _, one := range all {
				one.committed(c)
			}
		}
	}
}

// apply passes the Services of a file.
func (s *story) apply(sc *script.Script, file string) error {
	objects, err := tabletest.Objects(sc.ReadFile(file))
	for _, object := range objects {
		parsed := translate.ParseService(object.(*corev1.Service))
		err = errors.Join(err, errors.Join(parsed.Problems...))
		s.services[parsed.Name] = parsed.Service
		s.table.SetService(parsed.Service)
	}
	return err
}

// delete deletes Services.
func (s *story) delete(names ...string) {
	for _, name := range names {
		s.table.DeleteService(cluster.ServiceName{Namespace: "ns", Name: name})
	}
}

// node sets the primary address of the node and those within nodePortAddresses.
func (s *story) node(addr netip.Addr, nodePortIPs ...netip.Addr) {
	node := tabletest.Node()
	node.IPs, node.NodePortIPs = []netip.Addr{addr}, nodePortIPs
	s.table.SetNode(node)
}

// commit commits a plan, and returns the events of new states.
func (s *story) commit(words ...string) (text string) {
	before := s.plan
	s.plan = planOf(strings.Join(words, " "))
	commit := &table.Commit{Family: nft.IPv4, Changes: []table.PortChange{{Before: before, After: s.plan}}}
	s.balance.committed(commit)
	s.ejected.committed(commit)
	for _, e := range s.events {
		text += e.Reason + ": " + e.Note + "\n"
	}
	s.events = nil
	return text
}

// slice replaces the EndpointSlice of a Service, as the tracker of a Proxier
// does: NAME SERVICE ADDRESS[,WORD…]… The slice is deleted if it has no
// endpoint. The words are a state, a node, weight=N, port=N or noports.
func (s *story) slice(name, service string, endpoints ...string) error {
	now, err := s.parseSlice(name, service, endpoints)
	if err == nil {
		s.setSlice(name, now)
	}
	return err
}

func (s *story) setSlice(name string, now *translate.EndpointSlice) {
	before, passed := s.slices[name], now
	if len(now.Endpoints) == 0 {
		now = nil
	}
	s.resets.missing.replaced(before, now)
	if s.table != nil {
		s.table.SetEndpoints(passed.Service, name, passed.Endpoints)
	}
	s.slices[name] = now
}

func (s *story) parseSlice(name, service string, endpoints []string) (*translate.EndpointSlice, error) {
	slice := &translate.EndpointSlice{
		Name:    translate.SliceName{Namespace: "ns", Name: name},
		Service: cluster.ServiceName{Namespace: "ns", Name: service}, Family: nft.IPv4,
	}
	for _, text := range endpoints {
		words := strings.Split(text, ",")
		addr, err := netip.ParseAddr(words[0])
		if err != nil {
			return nil, err
		}
		e := &cluster.Endpoint{
			EndpointKey: cluster.EndpointKey{Source: name, Addr: addr}, Node: "node1", Ready: true, Serving: true,
			Ports: []cluster.EndpointPort{
				{Name: "dns", Protocol: cluster.UDP, Port: 53}, {Name: "dns-tcp", Protocol: cluster.TCP, Port: 53},
				{Name: "http", Protocol: cluster.TCP, Port: 8080}, {Name: "", Protocol: cluster.TCP, Port: 8080},
			},
		}
		for _, word := range words[1:] {
			if err := setWord(e, word); err != nil {
				return nil, err
			}
		}
		slice.Endpoints = append(slice.Endpoints, e)
	}
	return slice, nil
}

// setWord sets what a word of an endpoint says.
func setWord(e *cluster.Endpoint, word string) error {
	name, value, _ := strings.Cut(word, "=")
	number, _ := strconv.Atoi(value)
	switch name {
	case "serving": // and terminating
		e.Ready, e.Terminating = false, true
	case "terminating":
		e.Ready, e.Serving, e.Terminating = false, false, true
	case "published": // as ready, by publishNotReadyAddresses
		e.Terminating = true
	case "notready":
		e.Ready, e.Serving = false, false
	case "node2":
		e.Node = "node2"
	case "weight":
		e.Weight = cluster.WeightOf(number)
	case "port":
		e.Ports = []cluster.EndpointPort{{Name: "http", Protocol: cluster.TCP, Port: uint16(number)}}
	case "sctp":
		e.Ports = append(e.Ports, cluster.EndpointPort{Name: "signals", Protocol: cluster.SCTP, Port: 8080})
	case "noports":
		e.Ports = nil
	default:
		return fmt.Errorf("unknown word %q", word)
	}
	return nil
}

// staleFlows returns a follower for flows of some protocols.
func (s *story) staleFlows(calls *[]string, protocols ...cluster.Protocol) *staleFlows {
	return &staleFlows{cleaning: cleaning{cleaner: &cleaner{r: &s.recorded, flows: calls}}, protocols: protocols}
}

// check makes the table look for changes of other programs. The last one was
// long ago.
func (s *story) check() error {
	time.Sleep(time.Hour)
	return s.table.Check()
}

// rewrite makes the table be written as a whole.
func (s *story) rewrite() error {
	nstest.RunNFT(s.t, "flush ruleset")
	return s.check()
}

// take returns recorded calls, and forgets them.
func (s *story) take(calls *[]string) func() string {
	return func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		defer func() { *calls = nil }()
		if calls == &s.removals || calls == &s.ports { // in no order
			slices.Sort(*calls)
		}
		var text strings.Builder
		for _, call := range *calls {
			fmt.Fprintln(&text, call)
		}
		return text.String()
	}
}

// missing returns the number of endpoints that are missing, and of their ports.
func (s *story) missing() int {
	return len(s.resets.missing.addrs) + maxMissing - s.resets.missing.limit.Left()
}

// hold makes removals wait for release.
func (s *story) setHold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = true
}

func (s *story) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.held {
		r.Done(0)
	}
	s.hold, s.held = false, nil
}

// serves returns the removals that wait and still reset connections of a
// frontend.
func (s *story) serves(frontend netip.AddrPort) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.held {
		if r.Serves(frontend) {
			n++
		}
	}
	return fmt.Sprintf("%d of %d", n, len(s.held))
}

// showMetrics returns the values of the metrics with these names.
func (s *story) showMetrics(names ...string) (string, error) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s.metrics)
	families, err := registry.Gather()
	var text strings.Builder
	for _, f := range families {
		if slices.Contains(names, f.GetName()) {
			f.Help = nil
			if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
				return "", err
			}
		}
	}
	return text.String(), err
}
