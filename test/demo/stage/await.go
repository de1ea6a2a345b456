package stage

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nftproxy/nftproxy/test/lab"
)

// How the first answer is waited for.
const (
	servedTimeout = 20 * time.Second       // until it is given up
	servedAttempt = 200 * time.Millisecond // one attempt
	servedPause   = 5 * time.Millisecond   // between two
)

// awaitServed waits until kube-proxy serves on every node, in both families: its rows all come in one step.
func (s *Stage) awaitServed(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, servedTimeout, fmt.Errorf("nothing is served after %v", servedTimeout))
	defer cancel()
	addrs, err := s.firstServed()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, node := range s.Lab.Nodes() {
		for _, addr := range addrs {
			group.Go(func() error { return s.awaitAnswer(ctx, node, addr) })
		}
	}
	return group.Wait()
}

// firstServed returns the ClusterIPs of some Service with endpoints.
func (s *Stage) firstServed() ([]netip.AddrPort, error) {
	for _, service := range s.Services {
		if port, err := service.Port("tcp"); err == nil && len(service.Endpoints) > 0 {
			return []netip.AddrPort{
				netip.AddrPortFrom(service.ClusterIPs.IPv4, port.Port),
				netip.AddrPortFrom(service.ClusterIPs.IPv6, port.Port),
			}, nil
		}
	}
	return nil, fmt.Errorf("the manifests have no service with endpoints")
}

func (s *Stage) awaitAnswer(ctx context.Context, node *lab.Node, addr netip.AddrPort) error {
	for {
		result := lab.Probe(ctx, node.Namespace, "tcp", addr, lab.ProbeOptions{Timeout: servedAttempt})
		if result.Outcome == lab.Answered {
			return nil
		}
		if err := s.Failure(); err != nil {
			return err
		}
		select {
		case <-time.After(servedPause):
		case <-ctx.Done():
			return fmt.Errorf("wait for %s on %s: %w, the last attempt %v; kube-proxy's last words:\n%s",
				addr, node.Name, context.Cause(ctx), result, lastLines(s.LogFile(node.Name)))
		}
	}
}
