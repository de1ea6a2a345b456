package main

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// load creates Services and EndpointSlices until there are that many.
func (w *world) load(ctx context.Context, services int) error {
	began, first := time.Now(), w.stock.services
	if err := inParallel(ctx, first, services, func(ctx context.Context, i int) error {
		return w.create(ctx, i, w.stock.addrs(i))
	}); err != nil {
		return err
	}
	w.stock.services = max(first, services)
	w.options.say("%d Services of %d endpoints are there, %d of them made in %.1f s", w.stock.services, w.stock.endpoints,
		w.stock.services-first, time.Since(began).Seconds())
	return nil
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
