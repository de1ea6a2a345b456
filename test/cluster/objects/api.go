// Package objects writes Services and EndpointSlices to an API server: single
// ones, or the states of package random. A Sentinel shows when a proxy has
// followed.
package objects

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryv1client "k8s.io/client-go/kubernetes/typed/discovery/v1"

	"github.com/nftproxy/nftproxy/test/random"
)

// API writes the objects of a cluster.
type API struct {
	Client kubernetes.Interface
	// Namespace is the namespace of Services and EndpointSlices. The default is
	// random.Namespace.
	Namespace string
	// Record is called before a request that gives a Service or EndpointSlice
	// this content, or deletes it. After success, the returned function is
	// called with the object of the answer, nil for a deletion. Record may be
	// nil.
	Record func(object metav1.Object, deleted bool) func(live metav1.Object)
}

// CreateServiceCIDR creates the second ServiceCIDR.
func (w *API) CreateServiceCIDR(ctx context.Context) error {
	second := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "second"}}
	for _, prefix := range random.SecondServiceRanges() {
		second.Spec.CIDRs = append(second.Spec.CIDRs, prefix.String())
	}
	_, err := w.Client.NetworkingV1().ServiceCIDRs().Create(ctx, second, metav1.CreateOptions{})
	return err
}

// Change is a request that changes the API. It can be repeated.
type Change func(context.Context) error

// Changes returns the requests that lead from one state to the next, in random
// order. before is nil at first.
func (w *API) Changes(g *random.Generator, before, after *random.State) (changes []Change) {
	for _, d := range random.Differences(before, after) {
		changes = append(changes, func(ctx context.Context) (err error) {
			switch object := d.Object.(type) {
			case *corev1.Service:
				if d.Deleted {
					return w.remove(ctx, object)
				}
				after.Named(object.Name).Live, err = w.PutService(ctx, object)
			case *discoveryv1.EndpointSlice:
				if d.Deleted {
					return w.remove(ctx, object)
				}
				err = w.PutSlice(ctx, object)
			}
			return err
		})
	}
	if before == nil || before.Node.Zone != after.Node.Zone {
		changes = append(changes, func(ctx context.Context) error { return w.SetZone(ctx, after.Node.Zone) })
	}
	g.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
	return changes
}

// Clear deletes all Services and EndpointSlices.
func (w *API) Clear(ctx context.Context) error {
	services, err := w.services().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, s := range services.Items {
		if s.Name != "kubernetes" {
			if err := w.remove(ctx, &s); err != nil {
				return err
			}
		}
	}
	return w.slices().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}

func (w *API) services() corev1client.ServiceInterface {
	return w.Client.CoreV1().Services(cmp.Or(w.Namespace, random.Namespace))
}

func (w *API) slices() discoveryv1client.EndpointSliceInterface {
	return w.Client.DiscoveryV1().EndpointSlices(cmp.Or(w.Namespace, random.Namespace))
}

// PutService creates a Service, or changes it. A change that the API does not
// allow deletes and creates it.
func (w *API) PutService(ctx context.Context, s *corev1.Service) (*corev1.Service, error) {
	write := func() (*corev1.Service, error) {
		to := s.DeepCopy()
		to.Status = corev1.ServiceStatus{} // the API server ignores it
		return put(ctx, w, w.services(), to, func(to, live *corev1.Service) { to.Status = live.Status })
	}
	live, err := write()
	if apierrors.IsInvalid(err) {
		if err = w.remove(ctx, s); err == nil {
			live, err = write()
		}
	}
	if err == nil && !equality.Semantic.DeepEqual(live.Status.LoadBalancer, s.Status.LoadBalancer) {
		live.Status = s.Status
		live, err = request(w, live, func() (*corev1.Service, error) {
			return w.services().UpdateStatus(ctx, live, metav1.UpdateOptions{})
		})
	}
	if err != nil {
		return nil, fmt.Errorf("%w:\n%s", err, random.YAML(s))
	}
	return live, nil
}

// PutSlice creates an EndpointSlice, or changes it.
func (w *API) PutSlice(ctx context.Context, s *discoveryv1.EndpointSlice) error {
	_, err := put(ctx, w, w.slices(), s.DeepCopy(), func(_, _ *discoveryv1.EndpointSlice) {})
	if err != nil {
		return fmt.Errorf("%w:\n%s", err, random.YAML(s))
	}
	return nil
}

// store is a client of objects of a kind.
type store[T metav1.Object] interface {
	Get(context.Context, string, metav1.GetOptions) (T, error)
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
}

// put creates an object, or changes it after adopt was called with it and the
// live object.
func put[T metav1.Object](ctx context.Context, w *API, api store[T], to T, adopt func(to, live T)) (T, error) {
	live, err := api.Get(ctx, to.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		to.SetResourceVersion("")
		return request(w, to, func() (T, error) { return api.Create(ctx, to, metav1.CreateOptions{}) })
	case err == nil:
		to.SetResourceVersion(live.GetResourceVersion())
		adopt(to, live)
		return request(w, to, func() (T, error) { return api.Update(ctx, to, metav1.UpdateOptions{}) })
	}
	return live, err
}

// request makes a request that gives an object a content.
func request[T metav1.Object](w *API, to T, f func() (T, error)) (live T, err error) {
	written := w.record(to, false)
	if live, err = f(); err == nil {
		written(live)
	}
	return live, err
}

// remove deletes a Service or an EndpointSlice. It may not exist: a repeated
// request finds what an earlier one did, whose answer was lost.
func (w *API) remove(ctx context.Context, object metav1.Object) error {
	request := w.slices().Delete
	if _, ok := object.(*corev1.Service); ok {
		request = w.services().Delete
	}
	deleted := w.record(object, true)
	if err := request(ctx, object.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	deleted(nil)
	return nil
}

func (w *API) record(object metav1.Object, deleted bool) func(live metav1.Object) {
	if w.Record == nil {
		return func(metav1.Object) {}
	}
	return w.Record(object, deleted)
}

// SetZone sets the zone of node1, unless the Node is deleted at the time.
func (w *API) SetZone(ctx context.Context, zone string) error {
	node, err := w.Client.CoreV1().Nodes().Get(ctx, "node1", metav1.GetOptions{})
	if err == nil {
		node.Labels = map[string]string{}
		if zone != "" {
			node.Labels[corev1.LabelTopologyZone] = zone
		}
		_, err = w.Client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
