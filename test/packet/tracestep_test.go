package packet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/trace"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
)

// traceSteps returns the steps of nftproxy trace.
func (s *story) traceSteps() map[string]any {
	return map[string]any{
		// skips the script on kernels without tables of a process.
		"needs-trace": func() { needOwnedTables(s.env.T) },
		// SERVICE FROM -> TO => OUTCOME traces the first packet of an attempt:
		// explain must predict it, with its reason.
		"traced": func(args ...string) {
			for _, k := range s.expectations(args...) {
				if !testing.Short() || k.network == "tcp" { // on emulated machines, each packet takes seconds
					k.traced(s.t)
				}
			}
		},
		"trace": s.trace,
	}
}

// needOwnedTables skips a test on kernels that cannot delete the table of a
// process that ends.
func needOwnedTables(t testing.TB) {
	t.Helper()
	if !nstest.KernelAtLeast(t, 5, 12) {
		t.Skip("tables with an owner require Linux 5.12")
	}
}

// trace prints the answer about a packet, and the steps of tables other than
// those of the proxy.
func (s *story) trace(network, family string, args ...string) (text string) {
	for _, k := range s.expectations(args...) {
		if k.network != network || k.family.String() != family {
			continue
		}
		run := s.startTrace(s.env.T, k.to.String(), "--count", "1", "--from",
			k.origin.source(k.family).String())
		k.probe(s.t.Context(), lab.ProbeOptions{Timeout: silence})
		packet := run.next(s.t)
		run.wait(s.t)
		text += packet.Answer + packet.Reason.CodeText() + "\n"
		if packet.Route.Code != "" {
			text += packet.Route.Text + packet.Route.CodeText() + "\n"
		}
		text += strings.Join(foreignSteps(packet), "; ") + "\n" + packet.Explain
	}
	return text
}

// foreignSteps returns the chains and verdicts of steps in other tables.
func foreignSteps(p trace.Packet) (steps []string) {
	for _, s := range p.Steps {
		if !strings.HasSuffix(s.Table, " kube-proxy") {
			policy := ""
			if s.Handle == 0 {
				policy = "policy "
			}
			steps = append(steps, s.Chain+" "+policy+s.Verdict)
		}
	}
	return steps
}

// traced makes an attempt while its first packet is traced on node1, and
// compares the packet with the attempt. The trace compares it with the
// prediction of package explain.
func (c *check) traced(t testing.TB) {
	t.Helper()
	run := c.cluster.startTrace(t, c.to.String(), "--count", "1", "--protocol", c.network,
		"--socket", "/nonexistent") // the prediction is from the rules only
	result := c.probe(t.Context(), lab.ProbeOptions{Timeout: c.timeout()})
	packet := run.next(t)
	if code := run.wait(t); code != 0 {
		t.Errorf("%s: got exit code %d, want 0", c.describe, code)
	}
	if result.Outcome != c.want.outcome {
		t.Fatalf("%s: got %v, want %v", c.describe, result, c.want.outcome)
	}
	if err := c.agrees(packet, result); err != nil {
		t.Errorf("%s: %v\nresult %v\npacket %+v", c.describe, err, result, packet)
	}
	if packet.Explain != "" {
		t.Errorf("%s: explain does not predict packet %+v", c.describe, packet)
	}
}

func (c *check) timeout() time.Duration {
	if c.want.outcome == lab.TimedOut {
		return silence
	}
	return answerTimeout
}

// agrees returns an error if a packet does not agree with the outcome of its
// attempt.
func (c *check) agrees(p trace.Packet, result lab.Result) error {
	if p.Destination != c.to || p.Source.Addr() != c.origin.source(c.family) || p.Protocol != c.network {
		return fmt.Errorf("want a packet to %v from %v", c.to, c.origin.source(c.family))
	}
	switch {
	case result.Outcome == lab.Refused && p.Action == explain.Reject:
		return nil
	case result.Outcome == lab.TimedOut && p.Action == explain.Drop:
		return nil
	case result.Outcome != lab.Answered || p.Action != explain.ToEndpoint || p.Final == nil:
		return fmt.Errorf("got %s", p.Action)
	}
	server := c.cluster.origin(result.Answer.Server)
	if p.Endpoint.Addr() != server.source(c.family) || p.Final.Destination != p.Endpoint {
		return fmt.Errorf("got endpoint %v, %v answered", p.Endpoint, server.source(c.family))
	}
	if p.Final.Source != result.Answer.Source {
		return fmt.Errorf("got source address %v, the endpoint saw %v", p.Final.Source, result.Answer.Source)
	}
	return nil
}
