package apiserver

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// metric returns the sum of a metric over all labels; 0 if the metric is
// absent.
func (p *proxy) metric(name string) float64 {
	p.t.Helper()
	answer, err := p.get(metricsAddress, "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	sum := 0.0
	for line := range strings.Lines(answer.body) {
		if !strings.HasPrefix(line, name+" ") && !strings.HasPrefix(line, name+"{") {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		if err != nil {
			p.t.Fatalf("%s: %v", line, err)
		}
		sum += value
	}
	return sum
}

// TestProgrammingLatency shows that the metric measures from the time in an
// EndpointSlice's annotation, and omits changes before the subject's start.
func TestProgrammingLatency(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.createService("web", "a1")
	web.setEndpointsSince("a1", time.Now().Add(-time.Hour))
	p := w.subject()
	p.startSynced()
	web.servedBy("a1")
	const metric = "kubeproxy_network_programming_duration_seconds"
	if n := p.metric(metric + "_count"); n != 0 {
		t.Errorf("observations before a change: got %g, want 0", n)
	}
	// The change is after the start and before now.
	time.Sleep(4 * time.Second)
	const age = 3 * time.Second
	begin := time.Now()
	web.setEndpointsSince("b1", begin.Add(-age))
	web.servedBy("b1")
	const families = 2
	p.eventually(metric, func() error {
		if n := p.metric(metric + "_count"); n != families {
			return fmt.Errorf("got %g observations, want %d", n, families)
		}
		return nil
	})
	least, most := families*age.Seconds(), families*(age+time.Since(begin)).Seconds()
	if sum := p.metric(metric + "_sum"); sum < least || sum > most {
		t.Errorf("sum: got %g s, want %g s to %g s", sum, least, most)
	}
}

// setEndpointsSince is like setEndpoints, with the time of the causing
// change.
func (s *service) setEndpointsSince(pods string, since time.Time) {
	s.w.t.Helper()
	for f := range s.w.Node1.Addrs() {
		slice := s.newSlice(f, strings.Fields(pods))
		slice.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: since.Format(time.RFC3339Nano)}
		s.w.writeSlice(slice)
	}
}
