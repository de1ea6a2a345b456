package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/test/bench/stage"
	"github.com/nftproxy/nftproxy/test/lab"
)

// world is a stage with the Services 0 to services-1, and some temporary ones.
type world struct {
	*stage.Stage
	tracing   string // folder where tracefs is mounted
	endpoints int    // of each Service
	services  int

	changed map[int][]netip.Addr // endpoints of changed Services
	fresh   int                  // new addresses of endpoints so far
	extra   int                  // temporary Services so far, numbered from stage.MaxServices
}

func (s *scale) newWorld(ctx context.Context, endpoints int) (w *world, err error) {
	w = &world{endpoints: endpoints, changed: map[int][]netip.Addr{}}
	if w.tracing, err = os.MkdirTemp("", "nftproxy-tracing-"); err != nil {
		return nil, err
	}
	if err := unix.Mount("tracefs", w.tracing, "tracefs", 0, ""); err != nil {
		return nil, errors.Join(fmt.Errorf("mount tracefs: %w", err), os.Remove(w.tracing))
	}
	if w.Stage, err = stage.New(ctx, s.programs); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// close removes the world. It may be nil.
func (w *world) close() (err error) {
	if w == nil {
		return nil
	}
	if w.Stage != nil {
		err = w.Stage.Close()
	}
	return errors.Join(err, unix.Unmount(w.tracing, unix.MNT_DETACH), os.Remove(w.tracing))
}

// load creates Services until there are that many, and lists all objects: the
// first proxy must not meet a colder API server than the next one.
func (w *world) load(ctx context.Context, services int) error {
	if err := w.Load(ctx, w.services, services, w.addrs); err != nil {
		return err
	}
	w.services = services
	cached := metav1.ListOptions{ResourceVersion: "0"}
	if _, err := w.Services().List(ctx, cached); err != nil {
		return err
	}
	_, err := w.Slices().List(ctx, cached)
	return err
}

// addrs returns the endpoints of a Service.
func (w *world) addrs(service int) []netip.Addr {
	if addrs, ok := w.changed[service]; ok {
		return slices.Clone(addrs)
	}
	return stage.Endpoints(service, w.endpoints)
}

// freshAddr returns a new address of an endpoint.
func (w *world) freshAddr() netip.Addr {
	w.fresh++
	return lab.AddrIn(netip.MustParsePrefix("10.192.0.0/16"), w.fresh)
}

// createExtraSlice creates the endpoints of a new temporary Service.
func (w *world) createExtraSlice(ctx context.Context) (service int, err error) {
	service = stage.MaxServices + w.extra
	w.extra++
	addrs := make([]netip.Addr, w.endpoints)
	for i := range addrs {
		addrs[i] = w.freshAddr()
	}
	_, err = w.Slices().Create(ctx, stage.NewSlice(service, addrs), metav1.CreateOptions{})
	return service, err
}

// creation returns a request that creates a Service.
func (w *world) creation(service int) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := w.Services().Create(ctx, stage.NewService(service), metav1.CreateOptions{})
		return err
	}
}

// deletion returns a request that deletes a Service.
func (w *world) deletion(service int) func(context.Context) error {
	return func(ctx context.Context) error {
		return w.Services().Delete(ctx, stage.ServiceName(service), metav1.DeleteOptions{})
	}
}

// update returns a request that changes the endpoints of a Service, and notes
// them.
func (w *world) update(service int, addrs []netip.Addr) func(context.Context) error {
	w.changed[service] = addrs
	return func(ctx context.Context) error {
		_, err := w.Slices().Update(ctx, stage.NewSlice(service, addrs), metav1.UpdateOptions{})
		return err
	}
}

func (w *world) deleteSlice(ctx context.Context, service int) error {
	return w.Slices().Delete(ctx, stage.ServiceName(service), metav1.DeleteOptions{})
}
