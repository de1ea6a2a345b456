package differential

import (
	"context"
	"maps"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/random"
)

// memory is what connection tracking or session affinity of both sides
// remembers: a flow or a client, with the same endpoint on both sides.
type memory struct {
	probe
	server  string
	clients [2]netip.Addr
	flows   [2]*lab.Conn // nil for a client with affinity
}

// maxMemories is the number of memories of a step.
const maxMemories = 16

// remember makes memories at frontends of a state, before it changes.
func (c *comparer) remember(ctx context.Context, g *generator, s *random.State) []*memory {
	var candidates []probe
	claims := claimsOf(s)
	for _, a := range s.Apps {
		for _, p := range frontends(a) {
			switch {
			case p.affinity:
				p.Kind, p.from = withAffinity, "outside"
			case p.Network == "udp":
				p.Kind, p.from = inUDPFlow, random.Pick(g.Generator, []string{"client", "pod1"})
			default:
				continue
			}
			if !p.To.Addr().IsLoopback() && claims[p.Frontend.String()] == 1 {
				candidates = append(candidates, p)
			}
		}
	}
	var all []*memory
	for _, p := range g.some(candidates, maxMemories) {
		if m := c.recall(ctx, p); m != nil {
			all = append(all, m)
		}
	}
	return all
}

// recall returns the memory of an endpoint that answers on both sides, or nil.
func (c *comparer) recall(ctx context.Context, p probe) *memory {
	m := &memory{probe: p}
	for i, s := range c.sides {
		if !s.recall(ctx, m, i) {
			m.close()
			return nil
		}
	}
	return m
}

// recall adds a flow or client of side i to a memory. The endpoint is the
// one that the side returned before. It reports whether there is one.
func (s *side) recall(ctx context.Context, m *memory, i int) bool {
	const enough = 30
	for range enough {
		m.clients[i] = s.origins[m.from].client(m.family())
		options := lab.ProbeOptions{Local: netip.AddrPortFrom(m.clients[i], 0), Timeout: shortly}
		flow, result := lab.Open(ctx, s.origins[m.from].Namespace, m.Network, m.To, options)
		if result.Outcome != lab.Answered {
			return false
		}
		if m.server == "" {
			m.server = result.Answer.Server
		}
		found := result.Answer.Server == m.server
		if found && m.Kind == inUDPFlow {
			m.flows[i] = flow
			return true
		}
		flow.Close()
		if found {
			return true
		}
	}
	return false
}

func (m *memory) close() {
	for _, flow := range m.flows {
		if flow != nil {
			flow.Close()
		}
	}
}

// review checks whether the memories are kept in a state after changes. Proxies
// delete stale flows shortly after a change.
func (c *comparer) review(ctx context.Context, memories []*memory, after *random.State) []difference {
	var (
		wait  sync.WaitGroup
		mu    sync.Mutex
		found []difference
	)
	claims := claimsOf(after)
	for _, m := range memories {
		wait.Go(func() {
			defer m.close()
			now := after.Named(m.app.Name())
			if claims[m.Frontend.String()] > 1 || !m.comparable(now, c.sides[0].address(m)) {
				return
			}
			var r results
			for range 4 {
				for i, s := range c.sides {
					r[i] = outcomes{s.review(ctx, m, i): true}
				}
				if r.equal() {
					return
				}
				time.Sleep(time.Second / 2)
			}
			d := difference{probe: m.probe, results: r, before: m.app}
			d.app = now
			mu.Lock()
			defer mu.Unlock()
			found = append(found, d)
		})
	}
	wait.Wait()
	return found
}

// comparable reports whether proxies must agree on a memory after a change of
// its app. They need not if its endpoint moved between EndpointSlices: each
// proxy may or may not have synced while no slice had it.
func (m *memory) comparable(now *random.App, address string) bool {
	if now == nil {
		return m.Kind == inUDPFlow
	}
	if m.Kind == withAffinity && now.Live.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return false
	}
	its := func(e discoveryv1.Endpoint) bool { return e.Addresses[0] == address }
	left := places(now, m.probe, its)
	return len(left) == 0 || maps.Equal(left, places(m.app, m.probe, its))
}

// address returns the address of the endpoint of a memory.
func (s *side) address(m *memory) string {
	return s.endpoints[m.server][m.family()].String()
}

func (s *side) review(ctx context.Context, m *memory, i int) string {
	var result lab.Result
	if flow := m.flows[i]; flow != nil {
		ctx, cancel := context.WithTimeout(ctx, shortly)
		defer cancel()
		result = flow.Ask(ctx)
	} else {
		result = s.probe(ctx, m.probe, m.clients[i], shortly)
	}
	switch {
	case result.Outcome != lab.Answered:
		return result.Outcome.String()
	case result.Answer.Server == m.server:
		return "kept"
	}
	return "another endpoint"
}
