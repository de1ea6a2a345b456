package differential

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/oracle"
	"github.com/nftproxy/nftproxy/test/random"
)

// outcomes is a set of outcomes of attempts.
type outcomes map[string]bool

func (o outcomes) String() string { return strings.Join(slices.Sorted(maps.Keys(o)), "; ") }

// Outcomes without an answer. Nothing answers at a destination of no Service,
// or at another port of an endpoint; how packets end there is not judged.
var (
	refused  = lab.Refused.String()
	silence  = lab.TimedOut.String()
	noAnswer = "no answer"
)

func isAnswer(outcome string) bool { return strings.HasPrefix(outcome, "answered") }

// judge compares the outcomes of probes on both sides with the oracle.
type judge struct {
	sides [2]*side
	oracle.Cluster
	names map[netip.Addr]string // of servers
}

// newJudge returns a judge of a state in which both sides are.
func newJudge(sides [2]*side, config oracle.Config, s *random.State) *judge {
	node, at := *s.Node, sides[0].Node1
	node.PodCIDRs, node.NodePortIPs = at.PodRanges, nil
	for _, addr := range node.LocalIPs {
		contains := func(p netip.Prefix) bool { return p.Contains(addr) }
		if slices.ContainsFunc(config.NodePortCIDRs, contains) {
			node.NodePortIPs = append(node.NodePortIPs, addr)
		}
	}
	j := &judge{sides, oracle.Cluster{Config: config, Node: &node, Addrs: node.LocalIPs}, map[netip.Addr]string{}}
	j.Services, j.Endpoints = s.Served()
	for name, addrs := range sides[0].endpoints {
		j.names[addrs[0]], j.names[addrs[1]] = name, name
	}
	return j
}

// connection returns a connection of a probe.
func (j *judge) connection(p probe) oracle.Connection {
	from := j.sides[0].origins[p.from]
	protocol, _ := cluster.ParseProtocol(p.Network)
	return oracle.Connection{
		Source: from.client(p.family()), Interface: from.arrivesOn, Destination: p.To, Protocol: protocol,
	}
}

// allowed returns the outcomes that the oracle allows for a connection.
func (j *judge) allowed(p probe, q oracle.Connection) outcomes {
	all, here := outcomes{}, j.sides[0].origins[p.from].isThisNode
	for _, o := range j.Outcomes(q) {
		to, source := o.Endpoint, "kept"
		if o.Masqueraded && !here {
			source = "masqueraded"
		}
		isServed := to.Port() == random.FirstTarget || to.Port() == random.SecondTarget
		switch {
		case o.Action == oracle.Refused:
			all[refused] = true
		case o.Action == oracle.Dropped, to.Addr() == q.Source && source == "kept" && !here:
			all[silence] = true // an endpoint drops packets from its own address
		case o.Action == oracle.NotService, !isServed:
			all[noAnswer] = true
		default:
			all[fmt.Sprintf("answered by %s, source %s", j.names[to.Addr()], source)] = true
		}
	}
	return all
}

// collect calls find for n indexes, several at a time, and returns what
// differs.
func collect(n int, find func(int) difference) (found []difference) {
	const concurrent = 60
	var wait sync.WaitGroup
	slots, all := make(chan struct{}, concurrent), make([]difference, n)
	for i := range n {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			all[i] = find(i)
		})
	}
	wait.Wait()
	return slices.DeleteFunc(all, func(d difference) bool { return !d.isWrong })
}

// shortly leaves time for the second SYN: kube-proxy refuses with ICMP, which
// the kernel drops while an IPv6 socket of the same machine connects.
const shortly = 1400 * time.Millisecond

// judge returns the last of several results, or one that is not wrong.
func (j *judge) judge(ctx context.Context, p probe) (d difference) {
	const pause = 700 * time.Millisecond
	if from := j.sides[0].origins[p.from]; !from.isThisNode && !j.IsConsistent(from.client(p.family())) {
		return d // it is not defined whether the client reaches itself
	}
	for _, timeout := range []time.Duration{shortly, lab.DefaultTimeout, lab.DefaultTimeout} {
		d = difference{probe: p, want: j.wanted(ctx, p, timeout)}
		d.got, d.isWrong = j.sides[p.side].attempts(ctx, p, d.want, timeout)
		if !d.isWrong || d.isKnown() {
			break
		}
		time.Sleep(pause)
	}
	return d
}

// wanted returns the outcomes that the oracle allows for a side. The oracle
// does not know health checks and the mode iptables, in which the other side
// must have the outcomes of kube-proxy. A client that stays with its endpoint
// does not show the others.
func (j *judge) wanted(ctx context.Context, p probe, timeout time.Duration) outcomes {
	const enough = 40
	switch {
	case p.Network != "http" && labtest.SubjectMode() != "iptables":
		return j.allowed(p, j.connection(p))
	case p.side == 0:
		return nil
	}
	all := outcomes{}
	for i, last := 0, "answered"; i < enough && p.Network != "http" && isAnswer(last) || i == 0; i++ {
		last = j.sides[0].outcome(ctx, p, timeout)
		all[last] = true
		if isAnswer(last) && j.sides[0].stays(p) {
			maps.Copy(all, j.allowed(p, j.connection(p)))
			break
		}
	}
	return all
}

// stays reports whether all attempts have the same client, which session
// affinity keeps at its endpoint.
func (s *side) stays(p probe) bool {
	return p.affinity && !s.origins[p.from].pool[p.family()].IsValid()
}

// attempts makes attempts until one has an outcome that is not wanted, or until
// they have had all wanted outcomes: at most so many that an endpoint is missed
// with a probability of (5/6)^240. A client with session affinity has one.
func (s *side) attempts(ctx context.Context, p probe, want outcomes, timeout time.Duration) (got outcomes, wrong bool) {
	got = outcomes{}
	enough := len(want)
	if s.stays(p) {
		enough = min(enough, 1)
	}
	least, most, maxSilent := 2+2*len(want), 40*len(want), 8
	for i := 0; i < most && maxSilent > 0; i++ {
		out := s.outcome(ctx, p, timeout)
		if want[noAnswer] && !isAnswer(out) {
			out = noAnswer
		}
		got[out] = true
		switch {
		case !want[out]:
			return got, true
		case len(got) >= enough && (i >= least || !isAnswer(out) || p.Network == "http"):
			return got, false
		case out == silence:
			maxSilent--
		}
	}
	return got, len(got) < enough
}

// outcome makes an attempt and describes its outcome. With session affinity,
// each client makes two.
func (s *side) outcome(ctx context.Context, p probe, timeout time.Duration) string {
	if p.Network == "http" {
		return s.health(ctx, p, timeout)
	}
	client := s.origins[p.from].client(p.family())
	if p.To.Addr().IsLoopback() {
		client = netip.Addr{}
	}
	result := s.probe(ctx, p, client, timeout)
	if p.affinity && result.Outcome == lab.Answered {
		again := s.probe(ctx, p, client, timeout)
		if again.Outcome != lab.Answered || again.Answer.Server != result.Answer.Server {
			return fmt.Sprintf("no affinity: %v", again.Outcome)
		}
	}
	return s.describe(result, p, client)
}

func (s *side) probe(ctx context.Context, p probe, client netip.Addr, timeout time.Duration) lab.Result {
	options := lab.ProbeOptions{Local: netip.AddrPortFrom(client, 0), Timeout: timeout}
	return lab.Probe(ctx, s.origins[p.from].Namespace, p.Network, p.To, options)
}

// describe returns an outcome. If node1 is the client, its addresses are all
// the same.
func (s *side) describe(result lab.Result, p probe, client netip.Addr) string {
	switch result.Outcome {
	case lab.Answered:
	case lab.Failed:
		return fmt.Sprintf("failed: %v", result.Err)
	default:
		return result.Outcome.String()
	}
	from, addr := s.origins[p.from], result.Answer.Source.Addr()
	ofNode := slices.Contains(append(s.Node1.Addrs(), random.SecondAddrs()...), addr)
	source := addr.String()
	switch {
	case from.isThisNode && ofNode, addr == client:
		source = "kept"
	case ofNode:
		source = "masqueraded"
	}
	return fmt.Sprintf("answered by %s, source %s", result.Answer.Server, source)
}

// health returns the answer of a health-check NodePort.
func (s *side) health(ctx context.Context, p probe, timeout time.Duration) string {
	response, body, err := s.origins[p.from].Get(ctx, "http://"+p.To.String()+"/", timeout)
	if err != nil {
		if strings.Contains(err.Error(), "refused") {
			return refused
		}
		return err.Error()
	}
	header := response.Header
	header.Del("Date")
	return fmt.Sprintf("answered %s %v %s", response.Status, header, body)
}
