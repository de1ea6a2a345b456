package packet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/nftproxy/nftproxy/cmd/top"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/must"
)

// observationSteps returns the steps that read what the proxy of node1 reports.
func (s *story) observationSteps() map[string]any {
	return map[string]any{
		// returns the sum of a metric of node1 with LABEL=VALUE....
		"metric": func(name string, labels ...string) int { return s.metric(s.t, name, labels...) },
		"some":   s.some, "grows": s.grows, "metrics": s.metricsStep, "refusals": s.refusals,
		"health": s.health, "log": s.logged, "connections": s.connections,
		// prints the output of a command, which may find problems.
		"nftproxy": func(args ...string) string {
			out, _ := s.nftproxy(s.t, args...).Output()
			return string(out)
		},
		"shows": s.shows, "generations": s.generations,
	}
}

// shows PATTERN repeats a command of nftproxy until its output has a match.
func (s *story) shows(pattern string, args ...string) (text string) {
	matches := regexp.MustCompile("(?m)" + pattern)
	eventually(s.t, strings.Join(args, " "), func() error {
		out, _ := s.nftproxy(s.t, args...).Output()
		if text = string(out); !matches.MatchString(text) {
			return fmt.Errorf("no match for %q in\n%s", pattern, text)
		}
		return nil
	})
	return text
}

// families returns the metrics of node1 by name.
func (c *cluster) metrics(t testing.TB) map[string]*dto.MetricFamily {
	t.Helper()
	_, body, err := c.Node1.Get(t.Context(), "http://127.0.0.1:10249/metrics", 0)
	must.NoError(t, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	must.NoError(t, err)
	return all
}

// samples returns the values of a metric by its labels, such as
// ip_family=IPv4 reason=NoEndpoints.
func (c *cluster) samples(t testing.TB, name string) map[string]int {
	t.Helper()
	values := map[string]int{}
	for _, m := range c.metrics(t)[name].GetMetric() {
		var labels []string
		for _, l := range m.GetLabel() {
			labels = append(labels, l.GetName()+"="+l.GetValue())
		}
		values[strings.Join(labels, " ")] = int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
	}
	return values
}

// metric returns the sum of the samples of a metric with these labels.
func (c *cluster) metric(t testing.TB, name string, labels ...string) (sum int) {
	t.Helper()
	found := false
	for sample, value := range c.samples(t, name) {
		have := strings.Fields(sample)
		if !slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(have, l) }) {
			sum, found = sum+value, true
		}
	}
	if !found {
		t.Fatalf("got no metric %s %v", name, labels)
	}
	return sum
}

// some fails if the sum of a metric is 0.
func (s *story) some(name string) {
	if s.metric(s.t, name) == 0 {
		s.t.Errorf("got 0")
	}
}

// grows is like connect, and the metric of each family must grow.
func (s *story) grows(name string, args ...string) {
	before := s.samples(s.t, name)
	s.connect(args...)
	grown := map[string]bool{}
	for sample, n := range s.samples(s.t, name) {
		family, _, _ := strings.Cut(sample, " ")
		grown[family] = grown[family] || n > before[sample]
	}
	if len(grown) != 2 || slices.Contains(slices.Collect(maps.Values(grown)), false) {
		s.t.Errorf("%s did not grow in both families: %v", name, grown)
	}
}

// metricsStep prints the samples of a metric.
func (s *story) metricsStep(name string) string {
	var lines []string
	for sample, value := range s.samples(s.t, name) {
		lines = append(lines, fmt.Sprintf("%s: %d\n", sample, value))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// refusals SERVICE FROM -> TO sends one UDP packet for each family, and returns
// the reasons whose counters grew.
func (s *story) refusals(args ...string) (text string) {
	for _, k := range s.expectations(args...) {
		if k.network != "udp" {
			continue
		}
		before := s.refused(s.t)
		k.probe(s.t.Context(), lab.ProbeOptions{Timeout: silence})
		for sample, n := range s.refused(s.t) {
			for range n - before[sample] {
				text += strings.NewReplacer("ip_family=", "", "reason=", "").Replace(sample) + "\n"
			}
		}
	}
	return text
}

// refused returns the numbers of packets that node1 rejected or dropped.
func (c *cluster) refused(t testing.TB) map[string]int {
	t.Helper()
	all := c.samples(t, "nftproxy_rejected_packets_total")
	for sample, n := range c.samples(t, "nftproxy_dropped_packets_total") {
		all[sample] = n
	}
	return all
}

// health returns the local endpoints that a health-check NodePort reports.
func (s *story) health(node string, port uint16) string {
	var answers []string
	for _, addr := range s.node(node).Addrs() {
		n, err := s.healthCheck(s.t, netip.AddrPortFrom(addr, port))
		must.NoError(s.t, err)
		answers = append(answers, fmt.Sprint(n))
	}
	return strings.Join(slices.Compact(answers), " and ")
}

// healthCheck returns the number of local endpoints that a health server
// reports for the Service web. The status, the header and the body must agree.
func (c *cluster) healthCheck(t testing.TB, at netip.AddrPort) (int, error) {
	response, body, err := c.Client.Get(t.Context(), "http://"+at.String()+"/healthz", answerTimeout)
	if err != nil {
		return 0, err
	}
	var health struct {
		Service             struct{ Namespace, Name string }
		LocalEndpoints      int
		ServiceProxyHealthy bool
	}
	if err := json.Unmarshal(body, &health); err != nil {
		return 0, fmt.Errorf("%q: %w", body, err)
	}
	status := http.StatusOK
	if health.LocalEndpoints == 0 {
		status = http.StatusServiceUnavailable
	}
	weight := response.Header.Get("X-Load-Balancing-Endpoint-Weight")
	if response.StatusCode != status || weight != fmt.Sprint(health.LocalEndpoints) ||
		!health.ServiceProxyHealthy || health.Service.Namespace != "default" || health.Service.Name != "web" {
		return 0, fmt.Errorf("got status %d, weight %q, body %s", response.StatusCode, weight, body)
	}
	return health.LocalEndpoints, nil
}

// logged returns the number of lines with a text in the log of NODE[,NODE].
func (s *story) logged(nodes string, words ...string) string {
	var counts []string
	for name := range strings.SplitSeq(nodes, ",") {
		counts = append(counts, fmt.Sprint(strings.Count(s.proxy(name).process.Log(), strings.Join(words, " "))))
	}
	return strings.Join(slices.Compact(counts), " and ")
}

// nftproxy returns the command nftproxy for node1.
func (c *cluster) nftproxy(t testing.TB, args ...string) *lab.Cmd {
	t.Helper()
	program, err := os.Executable()
	must.NoError(t, err)
	cmd := c.Node1.Command(context.Background(), program, args...)
	cmd.Env = append(os.Environ(), asNftproxy+"=1")
	return cmd
}

// connections returns the connections to the service ports of a Service by
// state and endpoint, as nftproxy top counts them.
func (s *story) connections(service string) (text string) {
	var snapshot top.Snapshot
	out, err := s.nftproxy(s.t, "top", service, "-o", "json").Output()
	if err == nil {
		err = json.Unmarshal(out, &snapshot)
	}
	if err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
	for _, p := range snapshot.ServicePorts {
		text += p.Name
		for i, n := range []int{p.Open, p.Opening, p.Closing, p.Unanswered} {
			if n > 0 {
				text += fmt.Sprintf(" %s %d", []string{"open", "opening", "closing", "unanswered"}[i], n)
			}
		}
		for _, e := range p.Endpoints {
			text += strings.TrimRight(fmt.Sprintf(", %s %d %s", e.Address, e.Connections, e.Unused), " ")
		}
		text += "\n"
	}
	return text
}

// generations returns the generation of the ruleset of each node.
func (s *story) generations() (text string) {
	for _, node := range s.Nodes() {
		err := node.Do(func() error {
			conn, err := nft.Open()
			if err != nil {
				return err
			}
			defer conn.Close()
			n, err := conn.Generation()
			text += fmt.Sprintln(node.Name, n)
			return err
		})
		must.NoError(s.t, err)
	}
	return text
}
