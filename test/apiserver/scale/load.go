package main

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// many is a number of Services from which on it takes less time to make them in another way.
const many = 500

// load creates Services and EndpointSlices until there are that many.
func (w *world) load(ctx context.Context, services int) error {
	began, first := time.Now(), w.stock.services
	load := w.create
	if services-first > many {
		if err := w.restartAPIServer(ctx, bitmaps()...); err != nil {
			return err
		}
		load = w.createAllocated
	}
	if err := inParallel(ctx, first, services, func(ctx context.Context, i int) error {
		return load(ctx, i, w.stock.addrs(i))
	}); err != nil {
		return err
	}
	if services-first > many {
		if err := w.restartAPIServer(ctx); err != nil {
			return err
		}
	}
	w.stock.services = max(first, services)
	w.options.say("%d Services of %d endpoints are there, %d of them made in %.1f s", w.stock.services, w.stock.endpoints,
		w.stock.services-first, time.Since(began).Seconds())
	return nil
}

// bitmaps are arguments by which the API server allocates ClusterIPs as it did before Kubernetes 1.33. For every Service that it
// creates since, it counts all addresses twice: tens of thousands would take hours.
func bitmaps() []string {
	return []string{"--emulated-version=1.33", "--feature-gates=MultiCIDRServiceAllocator=false"}
}

func (w *world) restartAPIServer(ctx context.Context, arguments ...string) error {
	if err := w.cluster.APIServer.Stop(); err != nil {
		return err
	}
	w.cluster.APIServer.Arguments = arguments
	return w.cluster.APIServer.Start(ctx)
}

// createAllocated is create where the API server allocates by bitmaps. The address is noted as it is by others, so that these have nothing
// to repair.
func (w *world) createAllocated(ctx context.Context, service int, addrs []netip.Addr) error {
	if err := w.create(ctx, service, addrs); err != nil {
		return err
	}
	_, err := w.client.NetworkingV1().IPAddresses().Create(ctx, newIPAddress(service), metav1.CreateOptions{})
	return err
}

// create creates a Service with its endpoints.
func (w *world) create(ctx context.Context, service int, addrs []netip.Addr) error {
	if err := w.createSlice(ctx, service, addrs); err != nil {
		return err
	}
	return w.createService(ctx, service)
}

func (w *world) createService(ctx context.Context, service int) error {
	_, err := w.client.CoreV1().Services(namespaceName).Create(ctx, newService(service), metav1.CreateOptions{})
	return err
}

func (w *world) createSlice(ctx context.Context, service int, addrs []netip.Addr) error {
	_, err := w.client.DiscoveryV1().EndpointSlices(namespaceName).Create(ctx, newSlice(service, addrs), metav1.CreateOptions{})
	return err
}

func (w *world) updateSlice(ctx context.Context, service int, addrs []netip.Addr) error {
	_, err := w.client.DiscoveryV1().EndpointSlices(namespaceName).Update(ctx, newSlice(service, addrs), metav1.UpdateOptions{})
	return err
}

func (w *world) deleteService(ctx context.Context, service int) error {
	return w.client.CoreV1().Services(namespaceName).Delete(ctx, serviceName(service), metav1.DeleteOptions{})
}

func (w *world) deleteSlice(ctx context.Context, service int) error {
	return w.client.DiscoveryV1().EndpointSlices(namespaceName).Delete(ctx, serviceName(service), metav1.DeleteOptions{})
}

// inParallel calls f for the numbers from first to end-1, many at a time, until one fails.
func inParallel(ctx context.Context, first, end int, f func(context.Context, int) error) error {
	const workers = 64
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	numbers := make(chan int)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := range numbers {
				if err := f(ctx, i); err != nil {
					cancel(fmt.Errorf("%s: %w", serviceName(i), err))
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
