package stage

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// many is a number of Services from which on it takes less time to make them in another way.
const many = 500

// Load creates the Services from first to end-1, with the EndpointSlices of these endpoints.
func (s *Stage) Load(ctx context.Context, first, end int, endpoints func(service int) []netip.Addr) error {
	if end-first <= many {
		return InParallel(ctx, first, end, func(ctx context.Context, i int) error { return s.createNumbered(ctx, i, endpoints(i)) })
	}
	if err := s.restartAPIServer(ctx, bitmaps()...); err != nil {
		return err
	}
	if err := InParallel(ctx, first, end, func(ctx context.Context, i int) error { return s.createAllocated(ctx, i, endpoints(i)) }); err != nil {
		return err
	}
	return s.restartAPIServer(ctx)
}

// bitmaps are arguments by which the API server allocates ClusterIPs as it did before Kubernetes 1.33. For every Service that it
// creates since, it counts all addresses twice: tens of thousands would take hours.
func bitmaps() []string {
	return []string{"--emulated-version=1.33", "--feature-gates=MultiCIDRServiceAllocator=false"}
}

func (s *Stage) restartAPIServer(ctx context.Context, arguments ...string) error {
	if err := s.Cluster.APIServer.Stop(); err != nil {
		return err
	}
	s.Cluster.APIServer.Arguments = arguments
	return s.Cluster.APIServer.Start(ctx)
}

// createAllocated is createNumbered where the API server allocates by bitmaps. The address is noted as it is by others, so that these
// have nothing to repair.
func (s *Stage) createAllocated(ctx context.Context, service int, addrs []netip.Addr) error {
	if err := s.createNumbered(ctx, service, addrs); err != nil {
		return err
	}
	_, err := s.Client.NetworkingV1().IPAddresses().Create(ctx, newIPAddress(service), metav1.CreateOptions{})
	return err
}

func (s *Stage) createNumbered(ctx context.Context, service int, addrs []netip.Addr) error {
	return s.Create(ctx, NewService(service), NewSlice(service, addrs))
}

// Create creates a Service with its endpoints.
func (s *Stage) Create(ctx context.Context, service *corev1.Service, slice *discoveryv1.EndpointSlice) error {
	if _, err := s.Client.DiscoveryV1().EndpointSlices(NamespaceName).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := s.Client.CoreV1().Services(NamespaceName).Create(ctx, service, metav1.CreateOptions{})
	return err
}

// InParallel calls f for the numbers of Services from first to end-1, many at a time, until one fails.
func InParallel(ctx context.Context, first, end int, f func(context.Context, int) error) error {
	const workers = 64
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	numbers := make(chan int)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := range numbers {
				if err := f(ctx, i); err != nil {
					cancel(fmt.Errorf("%s: %w", ServiceName(i), err))
				}
			}
		})
	}
	for i := first; i < end && ctx.Err() == nil; i++ {
		numbers <- i
	}
	close(numbers)
	all.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
