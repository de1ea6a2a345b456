package random

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/test/lab"
)

// API writes the objects of a cluster.
type API struct {
	Client kubernetes.Interface
	// Recorder is called for each request; it may be nil.
	Recorder Recorder
}

// Recorder records requests that change Services and EndpointSlices.
type Recorder interface {
	// Service is called before a request that gives a Service this content;
	// nil deletes it. After success, the returned function is called with the
	// object of the answer.
	Service(name string, to *corev1.Service) func(*corev1.Service)
	// Slice is Service for an EndpointSlice.
	Slice(name string, to *discoveryv1.EndpointSlice) func(*discoveryv1.EndpointSlice)
}

// CreateNodes creates the Node objects of a lab, and the second ServiceCIDR.
func (w *API) CreateNodes(ctx context.Context, nodes []*lab.Node) error {
	for _, n := range nodes {
		if err := w.CreateNode(ctx, n); err != nil {
			return err
		}
	}
	second := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "second"}}
	for _, prefix := range SecondServiceRanges() {
		second.Spec.CIDRs = append(second.Spec.CIDRs, prefix.String())
	}
	_, err := w.Client.NetworkingV1().ServiceCIDRs().Create(ctx, second, metav1.CreateOptions{})
	return err
}

// CreateNode creates the Node object of a node of a lab.
func (w *API) CreateNode(ctx context.Context, n *lab.Node) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
	for _, prefix := range n.PodRanges {
		node.Spec.PodCIDRs = append(node.Spec.PodCIDRs, prefix.String())
	}
	node.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	node, err := w.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for _, addr := range n.Addrs() {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{
			Type: corev1.NodeInternalIP, Address: addr.String(),
		})
	}
	_, err = w.Client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

// Change is a request that changes the API. It can be repeated.
type Change func(context.Context) error

// Changes returns the requests that lead from one state to the next, in random
// order. before is nil at first.
func (w *API) Changes(g *Generator, before, after *State) []Change {
	var changes []Change
	old := map[string]*App{}
	if before != nil {
		for _, a := range before.Apps {
			old[a.Name()] = a
		}
	}
	for _, a := range after.Apps {
		changes = append(changes, w.changesOf(old[a.Name()], a)...)
		delete(old, a.Name())
	}
	for _, name := range slices.Sorted(maps.Keys(old)) {
		changes = append(changes, func(ctx context.Context) error { return w.deleteService(ctx, name) })
		for _, s := range old[name].Slices {
			changes = append(changes, func(ctx context.Context) error { return w.deleteSlice(ctx, s.Name) })
		}
	}
	if before == nil || before.Zone != after.Zone {
		changes = append(changes, func(ctx context.Context) error { return w.setZone(ctx, after.Zone) })
	}
	g.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
	return changes
}

// changesOf returns the requests for the differences between two versions of an
// app. before is nil if the app is new.
func (w *API) changesOf(before, a *App) (changes []Change) {
	if before == nil || !equality.Semantic.DeepEqual(before.service(), a.service()) {
		changes = append(changes, func(ctx context.Context) (err error) {
			a.Live, err = w.PutService(ctx, a.service())
			return err
		})
	}
	for _, s := range a.Slices {
		if before == nil || !equality.Semantic.DeepEqual(before.slice(s.Name), s) {
			changes = append(changes, func(ctx context.Context) error { return w.PutSlice(ctx, s) })
		}
	}
	if before == nil {
		return changes
	}
	for _, s := range before.Slices {
		if a.slice(s.Name) == nil {
			changes = append(changes, func(ctx context.Context) error { return w.deleteSlice(ctx, s.Name) })
		}
	}
	return changes
}

// slice returns the EndpointSlice of a name, or nil.
func (a *App) slice(name string) *discoveryv1.EndpointSlice {
	i := slices.IndexFunc(a.Slices, func(s *discoveryv1.EndpointSlice) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return a.Slices[i]
}

// Clear deletes all Services and EndpointSlices.
func (w *API) Clear(ctx context.Context) error {
	services, err := w.Client.CoreV1().Services(Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, s := range services.Items {
		if s.Name != "kubernetes" {
			if err := w.deleteService(ctx, s.Name); err != nil {
				return err
			}
		}
	}
	none := metav1.DeleteOptions{}
	return w.Client.DiscoveryV1().EndpointSlices(Namespace).DeleteCollection(ctx, none, metav1.ListOptions{})
}

// PutService creates a Service, or changes it. A change that the API does not
// allow deletes and creates it.
func (w *API) PutService(ctx context.Context, s *corev1.Service) (*corev1.Service, error) {
	live, err := w.Client.CoreV1().Services(Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	if err == nil {
		if live, err = w.updateService(ctx, s, live); apierrors.IsInvalid(err) {
			err = w.deleteService(ctx, s.Name)
			if err == nil {
				live, err = w.createService(ctx, s)
			}
		}
	} else if apierrors.IsNotFound(err) {
		live, err = w.createService(ctx, s)
	}
	if err == nil && !equality.Semantic.DeepEqual(live.Status.LoadBalancer, s.Status.LoadBalancer) {
		live, err = w.updateServiceStatus(ctx, s, live)
	}
	if err != nil {
		return nil, fmt.Errorf("%w:\n%s", err, YAML(s))
	}
	return live, nil
}

func (w *API) createService(ctx context.Context, s *corev1.Service) (*corev1.Service, error) {
	without := s.DeepCopy()
	without.Status = corev1.ServiceStatus{} // the API server ignores it
	done := w.record(s.Name, without)
	live, err := w.Client.CoreV1().Services(Namespace).Create(ctx, without, metav1.CreateOptions{})
	return live, done(live, err)
}

func (w *API) updateService(ctx context.Context, s, live *corev1.Service) (*corev1.Service, error) {
	changed := s.DeepCopy()
	changed.ResourceVersion, changed.Status = live.ResourceVersion, live.Status
	done := w.record(s.Name, changed)
	live, err := w.Client.CoreV1().Services(Namespace).Update(ctx, changed, metav1.UpdateOptions{})
	return live, done(live, err)
}

func (w *API) updateServiceStatus(ctx context.Context, s, live *corev1.Service) (*corev1.Service, error) {
	live.Status = s.Status
	done := w.record(s.Name, live)
	live, err := w.Client.CoreV1().Services(Namespace).UpdateStatus(ctx, live, metav1.UpdateOptions{})
	return live, done(live, err)
}

func (w *API) deleteService(ctx context.Context, name string) error {
	done := w.record(name, nil)
	err := w.Client.CoreV1().Services(Namespace).Delete(ctx, name, metav1.DeleteOptions{})
	return done(nil, ignoreNotFound(err))
}

// ignoreNotFound returns nil for an object that does not exist: a repeated
// request finds what an earlier one did, whose answer was lost.
func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// record calls the recorder before a request. The returned function is called
// with the result, and returns the error.
func (w *API) record(name string, to *corev1.Service) func(*corev1.Service, error) error {
	written := func(*corev1.Service) {}
	if w.Recorder != nil {
		written = w.Recorder.Service(name, to)
	}
	return func(live *corev1.Service, err error) error {
		if err == nil {
			written(live)
		}
		return err
	}
}

// PutSlice creates an EndpointSlice, or changes it.
func (w *API) PutSlice(ctx context.Context, s *discoveryv1.EndpointSlice) error {
	api, done := w.Client.DiscoveryV1().EndpointSlices(Namespace), w.recordSlice(s.Name, s)
	live, err := api.Get(ctx, s.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		live, err = api.Create(ctx, s, metav1.CreateOptions{})
	case err == nil:
		changed := s.DeepCopy()
		changed.ResourceVersion = live.ResourceVersion
		live, err = api.Update(ctx, changed, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("%w:\n%s", err, YAML(s))
	}
	done(live)
	return nil
}

func (w *API) deleteSlice(ctx context.Context, name string) error {
	done := w.recordSlice(name, nil)
	err := w.Client.DiscoveryV1().EndpointSlices(Namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err = ignoreNotFound(err); err == nil {
		done(nil)
	}
	return err
}

func (w *API) recordSlice(name string, to *discoveryv1.EndpointSlice) func(*discoveryv1.EndpointSlice) {
	if w.Recorder == nil {
		return func(*discoveryv1.EndpointSlice) {}
	}
	return w.Recorder.Slice(name, to)
}

func (w *API) setZone(ctx context.Context, zone string) error {
	node, err := w.Client.CoreV1().Nodes().Get(ctx, "node1", metav1.GetOptions{})
	if err != nil {
		return ignoreNotFound(err)
	}
	node.Labels = map[string]string{}
	if zone != "" {
		node.Labels[corev1.LabelTopologyZone] = zone
	}
	_, err = w.Client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
	return ignoreNotFound(err)
}

// YAML returns an object as text for messages.
func YAML(object any) string {
	text, err := yaml.Marshal(object)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
