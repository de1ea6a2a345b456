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
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/metric"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
	"github.com/nftproxy/nftproxy/proxier/translate"
	"github.com/nftproxy/nftproxy/test/script"
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
//	flows, checks, ports, resets   prints the calls since the last time
//	hold, serves FRONTEND, release connections that are being reset
//	missing                        prints the number of missing endpoints
//	metrics NAME…                  prints metrics
type story struct {
	recorded
	t        testing.TB
	table    *table.Table
	metrics  *metric.Set
	resets   *staleConnections
	services map[cluster.ServiceName]*cluster.Service
	slices   map[string]*translate.EndpointSlice
}

func TestScripts(t *testing.T) {
	setup := func(e *script.Env) (map[string]script.Command, error) {
		s := newStory(e.T)
		return map[string]script.Command{
			"start": s.start, "apply": s.apply, "delete": s.delete, "slice": s.slice, "node": s.node,
			"sync": s.sync, "rewrite": s.rewrite, "check": s.check, "pass": s.pass, "metrics": s.showMetrics,
			"flows": s.take(&s.flows), "checks": s.take(&s.checks), "ports": s.take(&s.ports),
			"resets": s.take(&s.removals), "missing": s.missing,
			"hold": s.setHold, "release": s.release, "serves": s.serves,
		}, nil
	}
	script.Run(t, script.Suite{Namespace: true, FakeClock: true, Setup: setup})
}

func newStory(t testing.TB) *story {
	s := &story{
		t: t, metrics: metric.NewSet(nft.IPv4), services: make(map[cluster.ServiceName]*cluster.Service),
		slices: make(map[string]*translate.EndpointSlice),
	}
	local := map[nft.Family]*localhostPorts{nft.IPv4: {server: &portServer{r: &s.recorded}}}
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
func (s *story) start(_ *script.Script, args []string) (string, error) {
	rules := tabletest.Rules()
	rules.NodePortAddresses = ruleset.NodePortAddresses{}
	if args[0] != "primary" {
		rules.NodePortAddresses.CIDRs = tabletest.Prefixes(args[0])
	}
	rules.LocalhostNodePorts = strings.HasPrefix(args[0], "127.")
	all := []follower{
		&healthChecks{server: &healthServerCalls{r: &s.recorded}}, &localhostPorts{server: &portServer{r: &s.recorded}},
		&staleFlows{cleaning: cleaning{cleaner: &cleaner{r: &s.recorded, flows: true}}}, s.resets,
	}
	conn, err := nft.Open()
	if err != nil {
		return "", err
	}
	reader := &counterReader{conn: conn}
	s.t.Cleanup(func() { reader.close() })
	s.metrics.Add(newPacketCounters(nft.IPv4, reader).collect)
	if len(args) > 1 {
		rules.ServiceMetrics = ruleset.ServiceMetricsAll
		counted, err := newServiceConnections(&Config{Rules: rules, Metrics: s.metrics}, reader, nft.IPv4)
		if err != nil {
			return "", err
		}
		all = append(all, counted)
	}
	config := table.Config{Rules: rules, Events: new(tabletest.Events), Observer: observer(all)}
	tables, err := table.New(config, nft.IPv4)
	if err != nil {
		return "", err
	}
	s.table = tables[0]
	s.t.Cleanup(func() { s.table.Close() })
	return "", s.table.Setup()
}

// observer passes commits to followers.
type observer []follower

func (o observer) Committed(c *table.Commit) {
	for _, one := range o {
		one.committed(c)
	}
}

func (observer) Refused(table.Refusal)             {}
func (observer) Synced(keep.SyncResult)            {}
func (observer) Repaired(nft.Family, *keep.Damage) {}
func (observer) Blamed(nft.Family, []string)       {}

// apply passes the Services of a file.
func (s *story) apply(sc *script.Script, args []string) (string, error) {
	for document := range strings.SplitSeq(sc.ReadFile(args[0]), "\n---\n") {
		var object corev1.Service
		if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
			return "", err
		}
		parsed := translate.ParseService(&object)
		if err := errors.Join(parsed.Problems...); err != nil {
			return "", err
		}
		s.services[parsed.Name] = parsed.Service
		s.table.SetService(parsed.Service)
	}
	return "", nil
}

// delete deletes Services.
func (s *story) delete(_ *script.Script, args []string) (string, error) {
	for _, name := range args {
		s.table.DeleteService(cluster.ServiceName{Namespace: "ns", Name: name})
	}
	return "", nil
}

func (s *story) node(_ *script.Script, args []string) (string, error) {
	node := tabletest.Node()
	node.IPs = tabletest.Addrs(args...)
	s.table.SetNode(node)
	return "", nil
}

// slice replaces the EndpointSlice of a Service, as the tracker of a Proxier
// does: NAME SERVICE ADDRESS[,WORD…]… The slice is deleted if it has no
// endpoint. The words are a state, a node, weight=N, port=N or noports.
func (s *story) slice(_ *script.Script, args []string) (string, error) {
	now, err := s.parseSlice(args[0], args[1], args[2:])
	if err == nil {
		s.setSlice(args[0], now)
	}
	return "", err
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
	case "noports":
		e.Ports = nil
	default:
		return fmt.Errorf("unknown word %q", word)
	}
	return nil
}

func (s *story) sync(*script.Script, []string) (string, error) {
	tabletest.Sync(s.t, s.table)
	return "", nil
}

// check makes the table look for changes of other programs. The last one was
// long ago.
func (s *story) check(*script.Script, []string) (string, error) {
	time.Sleep(time.Hour)
	return "", s.table.Check()
}

// rewrite makes the table be written as a whole.
func (s *story) rewrite(sc *script.Script, _ []string) (string, error) {
	tabletest.NFT(s.t, "", "flush", "ruleset")
	return s.check(sc, nil)
}

func (*story) pass(_ *script.Script, args []string) (string, error) {
	d, err := time.ParseDuration(args[0])
	time.Sleep(d)
	synctest.Wait()
	return "", err
}

// take returns recorded calls, and forgets them.
func (s *story) take(calls *[]string) script.Command {
	return func(*script.Script, []string) (string, error) {
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
		return text.String(), nil
	}
}

// missing returns the number of endpoints that are missing, and of their ports.
func (s *story) missing(*script.Script, []string) (string, error) {
	return fmt.Sprint(len(s.resets.missing.addrs) + maxMissing - s.resets.missing.limit.Left()), nil
}

// hold makes removals wait for release.
func (s *story) setHold(*script.Script, []string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = true
	return "", nil
}

func (s *story) release(*script.Script, []string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.held {
		r.Done(0)
	}
	s.hold, s.held = false, nil
	return "", nil
}

// serves returns the removals that wait and still reset connections of a
// frontend.
func (s *story) serves(_ *script.Script, args []string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.held {
		if r.Serves(netip.MustParseAddrPort(args[0])) {
			n++
		}
	}
	return fmt.Sprintf("%d of %d", n, len(s.held)), nil
}

// showMetrics returns the values of the metrics with these names.
func (s *story) showMetrics(_ *script.Script, args []string) (string, error) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s.metrics)
	families, err := registry.Gather()
	var text strings.Builder
	for _, f := range families {
		if slices.Contains(args, f.GetName()) {
			f.Help = nil
			if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
				return "", err
			}
		}
	}
	return text.String(), err
}
