package tour

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nftproxy/nftproxy/test/demo/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
)

// showFlow takes the endpoint of UDP flows away.
func (t *tour) showFlow(ctx context.Context) (err error) {
	t.page.Scene("A UDP client whose server goes away")
	t.page.Text("The kernel keeps a UDP flow at the endpoint that it went to first, as long as the client uses the same socket. " +
		"When the endpoint is taken away kube-proxy ends the flow in the kernel's connection tracking, so that the next " +
		"question goes to another one. The toolbox asks kube-system/dns from one socket a family, again and again.")
	flows, server, err := t.openFlows(ctx)
	for _, flow := range flows {
		defer flow.Close()
	}
	if err != nil {
		return err
	}
	for _, flow := range flows {
		t.claim(askOften(ctx, flow, server), "%s: asked %d times, and %s answers every time.", vipOf(flow), asks, server)
	}
	dns := t.services.dns.Service
	others := slices.DeleteFunc(slices.Clone(dns.Endpoints), func(e cluster.Endpoint) bool { return e.Pod == server })
	removed, err := t.stage.WriteEndpoints(dns, others)
	if err != nil {
		return err
	}
	defer func() {
		_, writeErr := t.stage.WriteEndpoints(dns, dns.Endpoints)
		err = errors.Join(err, writeErr)
	}()
	moves, err := awaitMoves(ctx, flows, server)
	if err != nil {
		return err
	}
	for i, flow := range flows {
		next := moves[i].server
		ok := slices.Contains(cluster.Names(others), next) && askOften(ctx, flow, next)
		t.claim(ok, "%s: %s is taken away; on the same socket %s answers, %d ms later.",
			vipOf(flow), server, next, moves[i].at.Sub(removed).Milliseconds())
	}
	return nil
}

// openFlows opens a flow in each family, both to the same server. The caller must close those returned, also on an error.
func (t *tour) openFlows(ctx context.Context) (flows []*lab.Conn, server string, err error) {
	dns := t.services.dns
	for _, vip := range []netip.Addr{dns.ClusterIPs.IPv4, dns.ClusterIPs.IPv6} {
		flow, err := t.openFlow(ctx, netip.AddrPortFrom(vip, dns.port.Port), &server)
		if err != nil {
			return flows, server, err
		}
		flows = append(flows, flow)
	}
	return flows, server, nil
}

// openFlow opens a flow to that server. Which one it is is up to chance: if there is none yet, server becomes the one it is.
func (t *tour) openFlow(ctx context.Context, to netip.AddrPort, server *string) (*lab.Conn, error) {
	host, err := t.stage.Host("toolbox")
	if err != nil {
		return nil, err
	}
	for range attempts {
		flow, first := lab.Open(ctx, host, "udp", to, lab.ProbeOptions{})
		if flow == nil {
			return nil, fmt.Errorf("ask %s: %v", to, first)
		}
		t.connections.Add(1)
		if *server == "" {
			*server = first.Answer.Server
		}
		if first.Answer.Server == *server {
			return flow, nil
		}
		flow.Close()
	}
	return nil, fmt.Errorf("ask %s: %s never answers", to, *server)
}

// vipOf is the address that the flow is to.
func vipOf(flow *lab.Conn) string { return flow.RemoteAddr().String() }

// asks is how often a flow is asked to see that it stays where it is.
const asks = 20

// askOften tells whether the flow stays at the server.
func askOften(ctx context.Context, flow *lab.Conn, server string) bool {
	for range asks {
		if r := flow.Ask(ctx); r.Outcome != lab.Answered || r.Answer.Server != server {
			return false
		}
	}
	return true
}

// move is the first answer of another server.
type move struct {
	server string
	at     time.Time
}

// awaitMoves asks on all flows at the same time until somebody else than the server answers.
func awaitMoves(ctx context.Context, flows []*lab.Conn, server string) ([]move, error) {
	moves := make([]move, len(flows))
	group, ctx := errgroup.WithContext(ctx)
	for i, flow := range flows {
		group.Go(func() (err error) {
			if moves[i], err = awaitMove(ctx, flow, server); err != nil {
				return fmt.Errorf("flow to %s: %w", vipOf(flow), err)
			}
			return nil
		})
	}
	return moves, group.Wait()
}

func awaitMove(ctx context.Context, flow *lab.Conn, server string) (move, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, effectTimeout, fmt.Errorf("still goes to %s after %v", server, effectTimeout))
	defer cancel()
	const pause = 5 * time.Millisecond
	for ; ctx.Err() == nil; time.Sleep(pause) {
		if r := askBriefly(ctx, flow); r.Outcome == lab.Answered && r.Answer.Server != server {
			return move{r.Answer.Server, time.Now()}, nil
		}
	}
	return move{}, context.Cause(ctx)
}

// askBriefly asks once, and does not wait long: a datagram that is on its way while the flow moves can be lost.
func askBriefly(ctx context.Context, flow *lab.Conn) lab.Result {
	ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	return flow.Ask(ctx)
}
