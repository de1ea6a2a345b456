package main

import (
	"context"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/test/apiserver/scale/stage"
)

// load creates Services and EndpointSlices until there are that many.
func (w *world) load(ctx context.Context, services int) error {
	began, first := time.Now(), w.stock.services
	if err := w.Load(ctx, first, services, w.stock.addrs); err != nil {
		return err
	}
	if err := w.warmUp(ctx); err != nil {
		return err
	}
	w.stock.services = max(first, services)
	w.options.say("%d Services of %d endpoints are there, %d of them made in %.1f s", w.stock.services, w.stock.endpoints,
		w.stock.services-first, time.Since(began).Seconds())
	return nil
}

// warmUp lists everything once: the first proxy is not to meet an API server that has just started, and the next a warm one.
func (w *world) warmUp(ctx context.Context) error {
	if _, err := w.Client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{ResourceVersion: "0"}); err != nil {
		return err
	}
	_, err := w.Client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	return err
}

// create creates a Service with its endpoints.
func (w *world) create(ctx context.Context, service int, addrs []netip.Addr) error {
	return w.Create(ctx, stage.NewService(service), stage.NewSlice(service, addrs))
}

func (w *world) createService(ctx context.Context, service int) error {
	_, err := w.Client.CoreV1().Services(stage.NamespaceName).Create(ctx, stage.NewService(service), metav1.CreateOptions{})
	return err
}

func (w *world) createSlice(ctx context.Context, service int, addrs []netip.Addr) error {
	_, err := w.Client.DiscoveryV1().EndpointSlices(stage.NamespaceName).Create(ctx, stage.NewSlice(service, addrs), metav1.CreateOptions{})
	return err
}

func (w *world) updateSlice(ctx context.Context, service int, addrs []netip.Addr) error {
	_, err := w.Client.DiscoveryV1().EndpointSlices(stage.NamespaceName).Update(ctx, stage.NewSlice(service, addrs), metav1.UpdateOptions{})
	return err
}

func (w *world) deleteService(ctx context.Context, service int) error {
	return w.Client.CoreV1().Services(stage.NamespaceName).Delete(ctx, stage.ServiceName(service), metav1.DeleteOptions{})
}

func (w *world) deleteSlice(ctx context.Context, service int) error {
	return w.Client.DiscoveryV1().EndpointSlices(stage.NamespaceName).Delete(ctx, stage.ServiceName(service), metav1.DeleteOptions{})
}
