package differential

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/oracle"
	"github.com/nftproxy/nftproxy/test/random"
)

// memory is what connection tracking or session affinity of a side remembers: a
// UDP flow, or a client, with its endpoint.
type memory struct {
	probe
	client   netip.Addr
	endpoint netip.AddrPort
	server   string
	flow     *lab.Conn // nil for a client with affinity
	asked    time.Time // the last time
}

// The kernel takes a UDP flow with answers for a stream when it is older than
// streamAge. A younger flow to port 53 may get another endpoint after 3 s, and
// is not used if it was asked nothing for flowLife.
const (
	streamAge = 2 * time.Second
	flowLife  = 2500 * time.Millisecond
)

// maxMemories is the number of memories of a step on each side.
const maxMemories = 16

// remember makes memories at frontends of a state, before it changes.
func (j *judge) remember(ctx context.Context, g *random.Generator, s *random.State) (all []*memory) {
	var candidates []probe
	for _, p := range claimsOf(s) {
		if p.contested || p.To.Addr().IsLoopback() {
			continue
		}
		p.Kind = inUDPFlow
		if p.affinity {
			p.Kind = withAffinity
		}
		if p.affinity || p.Network == "udp" {
			candidates = append(candidates, p)
		}
	}
	var wait sync.WaitGroup
	var mu sync.Mutex // guards all
	for _, p := range some(g, candidates, maxMemories) {
		if p.from = fromOutside; !p.affinity {
			p.from = random.Pick(g, []int{fromClient, fromPod1})
		}
		for side := range j.sides {
			p := p
			p.side = side
			wait.Go(func() {
				if m := j.rememberOne(ctx, p); m != nil {
					mu.Lock()
					defer mu.Unlock()
					all = append(all, m)
				}
			})
		}
	}
	wait.Wait()
	for range 3 {
		time.Sleep(streamAge / 2)
		all = slices.DeleteFunc(all, func(m *memory) bool { return m.flow != nil && !j.keepsAlive(ctx, m) })
	}
	return all
}

// keepsAlive asks a flow, and closes it unless its endpoint answers and it was
// asked a short time ago.
func (j *judge) keepsAlive(ctx context.Context, m *memory) bool {
	waited := time.Since(m.asked)
	m.asked = time.Now()
	if waited < flowLife && j.sides[m.side].review(ctx, m) == "answered by "+m.server {
		return true
	}
	m.flow.Close()
	return false
}

// rememberOne returns a memory of a side, nil if no endpoint answers, or if it
// is not known at which port.
func (j *judge) rememberOne(ctx context.Context, p probe) *memory {
	from := j.sides[p.side].origins[p.from]
	m := &memory{probe: p, client: from.client(p.family())}
	options := lab.ProbeOptions{Local: netip.AddrPortFrom(m.client, 0), Timeout: shortly}
	m.asked = time.Now()
	flow, result := lab.Open(ctx, from.Namespace, m.Network, m.To, options)
	if result.Outcome != lab.Answered {
		return nil
	}
	m.server = result.Answer.Server
	known := 0
	for _, o := range j.Outcomes(j.connection(p)) {
		if j.names[o.Endpoint.Addr()] == m.server {
			m.endpoint = o.Endpoint
			known++
		}
	}
	if m.Kind == inUDPFlow && known == 1 {
		m.flow = flow
		return m
	}
	flow.Close()
	if known == 1 {
		return m
	}
	return nil
}

// review judges memories after changes. Proxies delete stale flows shortly
// after a change.
func (j *judge) review(ctx context.Context, memories []*memory, before, after *random.State) []difference {
	claims := claimsOf(after)
	return collect(len(memories), func(i int) difference {
		m := memories[i]
		d := difference{probe: m.probe, before: m.app}
		d.app = after.Named(m.app.Name())
		if m.flow != nil {
			defer m.flow.Close()
		}
		if claims[m.Frontend.String()].contested {
			return difference{}
		}
		d.want = j.remembered(m, isCertain(m.app, d.app) && before.Node.Zone == after.Node.Zone)
		for range 4 {
			out := j.sides[m.side].review(ctx, m)
			if d.got = (outcomes{out: true}); d.want[out] || d.want[noAnswer] && !isAnswer(out) {
				return difference{}
			}
			time.Sleep(time.Second / 2)
		}
		d.isWrong = true
		return d
	})
}

// remembered returns what is allowed for a memory: servers, or no answer. If it
// is not certain that the proxy remembers it, new connections are allowed, too.
func (j *judge) remembered(m *memory, certain bool) outcomes {
	q, want := j.connection(m.probe), outcomes{}
	add := func(q oracle.Connection) {
		for out := range j.allowed(m.probe, q) {
			server, _, _ := strings.Cut(out, ",")
			want[server] = true
		}
	}
	last := q
	last.Last = m.endpoint
	switch {
	case m.Kind == withAffinity:
		add(last)
	case j.KeepsFlow(last):
		want["answered by "+m.server] = true
	default:
		add(q)
	}
	if !certain {
		add(q)
	}
	return want
}

// isCertain reports whether at most one object of an app has changed. If there
// were more changes, each proxy may have synced between them.
func isCertain(before, after *random.App) bool {
	if after == nil || before.InAPI() == nil || after.InAPI() == nil {
		return false
	}
	changes := len(random.Differences(
		&random.State{Apps: []*random.App{before}}, &random.State{Apps: []*random.App{after}}))
	return changes <= 1 && before.InAPI().UID == after.InAPI().UID
}

// review asks the flow of a memory, or connects again, and returns the outcome.
func (s *side) review(ctx context.Context, m *memory) string {
	var result lab.Result
	if m.flow != nil {
		ctx, cancel := context.WithTimeout(ctx, shortly)
		defer cancel()
		result = m.flow.Ask(ctx)
	} else {
		result = s.probe(ctx, m.probe, m.client, shortly)
	}
	if result.Outcome == lab.Answered {
		return "answered by " + result.Answer.Server
	}
	return result.Outcome.String()
}
