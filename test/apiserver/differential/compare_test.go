package differential

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
)

// origin is a source of attempts. Its packets have the addresses of the
// namespace, single addresses, or another address of a pool in each attempt.
type origin struct {
	*lab.Namespace
	single [2]netip.Addr
	pool   [2]netip.Prefix

	clients atomic.Uint32
}

// client returns a source address. It is invalid if the kernel chooses it.
func (o *origin) client(f int) netip.Addr {
	if o.pool[f].IsValid() {
		size := uint32(1) << min(15, o.pool[f].Addr().BitLen()-o.pool[f].Bits())
		return lab.AddrIn(o.pool[f], 1+int(o.clients.Add(1)%(size-2)))
	}
	return o.single[f]
}

// outcomes is the set of outcomes of attempts.
type outcomes map[string]bool

func (o outcomes) String() string { return strings.Join(slices.Sorted(maps.Keys(o)), "; ") }

// answered reports whether an endpoint has answered.
func (o outcomes) answered() bool {
	for outcome := range o {
		if strings.HasPrefix(outcome, "answered") {
			return true
		}
	}
	return false
}

// results are the outcomes by side.
type results [2]outcomes

func (r results) equal() bool { return maps.Equal(r[0], r[1]) }

// comparer compares the outcomes of probes on both sides.
type comparer struct {
	sides [2]*side
}

// run compares probes concurrently and returns those that differ.
func (c *comparer) run(ctx context.Context, probes []probe) []difference {
	const concurrent = 60
	var (
		wait  sync.WaitGroup
		mu    sync.Mutex
		found []difference
	)
	slots := make(chan struct{}, concurrent)
	for _, p := range probes {
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			if r := c.compare(ctx, p); !r.equal() {
				mu.Lock()
				defer mu.Unlock()
				found = append(found, difference{probe: p, results: r})
			}
		})
	}
	wait.Wait()
	return found
}

// shortly leaves time for the second SYN: kube-proxy refuses with ICMP, which
// the kernel drops while an IPv6 socket of the same machine connects.
const shortly = 1400 * time.Millisecond

// compare returns equal results, or the last of several unequal ones.
func (c *comparer) compare(ctx context.Context, p probe) results {
	const pause = 700 * time.Millisecond
	r := c.once(ctx, p, shortly)
	for range 2 {
		if r.equal() || knownReason(difference{probe: p, results: r}) != "" {
			break
		}
		time.Sleep(pause)
		r = c.once(ctx, p, lab.DefaultTimeout)
	}
	return r
}

// once makes attempts on both sides until they have had the same outcomes, at
// most so many that an endpoint is missed with a probability of (5/6)^240.
func (c *comparer) once(ctx context.Context, p probe, timeout time.Duration) results {
	r := results{{}, {}}
	least, most, maxSilent := 2+2*p.endpoints, 40*max(1, p.endpoints), 3
	for i := 0; i < most; i++ {
		silent := c.attempt(ctx, p, timeout, r)
		if silent {
			maxSilent--
		}
		if r.equal() && (i >= least || silent || !r[0].answered()) || maxSilent == 0 {
			break
		}
	}
	return r
}

// attempt makes an attempt on both sides. It reports whether one had no
// answer.
func (c *comparer) attempt(ctx context.Context, p probe, timeout time.Duration, to results) (silent bool) {
	var outs [2]string
	var wait sync.WaitGroup
	for i, s := range c.sides {
		wait.Go(func() { outs[i] = s.outcome(ctx, p, timeout) })
	}
	wait.Wait()
	for i, out := range outs {
		to[i][out] = true
		silent = silent || out == lab.TimedOut.String()
	}
	return silent
}

// outcome makes an attempt and describes its outcome. With session affinity,
// each client makes two.
func (s *side) outcome(ctx context.Context, p probe, timeout time.Duration) string {
	if p.Network == "http" {
		return s.health(ctx, p, timeout)
	}
	f := p.family()
	client := s.origins[p.from].client(f)
	result := s.probe(ctx, p, client, timeout)
	out := s.describe(result, p, client, f)
	if p.affinity && result.Outcome == lab.Answered {
		again := s.probe(ctx, p, client, timeout)
		if again.Outcome != lab.Answered || again.Answer.Server != result.Answer.Server {
			return fmt.Sprintf("no affinity: %v", again.Outcome)
		}
	}
	return out
}

func (s *side) probe(ctx context.Context, p probe, client netip.Addr, timeout time.Duration) lab.Result {
	options := lab.ProbeOptions{Local: netip.AddrPortFrom(client, 0), Timeout: timeout}
	return lab.Probe(ctx, s.origins[p.from].Namespace, p.Network, p.To, options)
}

// describe returns an outcome. With session affinity, an origin with one
// address sees one endpoint only, which may differ between proxies, and with it
// the source address.
func (s *side) describe(result lab.Result, p probe, client netip.Addr, f int) string {
	switch result.Outcome {
	case lab.Answered:
	case lab.Failed:
		return fmt.Sprintf("failed: %v", result.Err)
	default:
		return result.Outcome.String()
	}
	from, server, source := s.origins[p.from], result.Answer.Server, result.Answer.Source.Addr().String()
	if !client.IsValid() {
		client = from.Addrs()[f]
	}
	if p.affinity && !from.pool[f].IsValid() {
		return "answered by one endpoint"
	}
	if source == client.String() {
		source = "kept"
	}
	return fmt.Sprintf("answered by %s, source %s", server, source)
}

// health returns the answer of a health-check NodePort.
func (s *side) health(ctx context.Context, p probe, timeout time.Duration) string {
	response, body, err := s.origins[p.from].Get(ctx, "http://"+p.To.String()+"/", timeout)
	if err != nil {
		if strings.Contains(err.Error(), "refused") {
			return lab.Refused.String()
		}
		return err.Error()
	}
	header := response.Header
	header.Del("Date")
	return fmt.Sprintf("answered %s %v %s", response.Status, header, body)
}
