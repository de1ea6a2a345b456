package differential

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apply changes the API from one state to the next, in random order. before
// is nil at first.
func (w *world) apply(ctx context.Context, g *generator, before, after *state) error {
	var changes []func() error
	old := map[string]*app{}
	if before != nil {
		for _, a := range before.apps {
			old[a.name()] = a
		}
	}
	for _, a := range after.apps {
		changes = append(changes, func() (err error) {
			a.live, err = w.putService(ctx, a.service())
			return err
		})
		for _, s := range a.slices {
			changes = append(changes, func() error { return w.putSlice(ctx, s) })
		}
		if o := old[a.name()]; o != nil {
			for _, s := range o.slices {
				if !a.hasSlice(s.Name) {
					changes = append(changes, func() error { return w.deleteSlice(ctx, s.Name) })
				}
			}
			delete(old, a.name())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(old)) {
		a := old[name]
		changes = append(changes, func() error { return w.deleteService(ctx, name) })
		for _, s := range a.slices {
			changes = append(changes, func() error { return w.deleteSlice(ctx, s.Name) })
		}
	}
	if before == nil || before.zone != after.zone {
		changes = append(changes, func() error { return w.setZone(ctx, after.zone) })
	}
	g.Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
	for _, change := range changes {
		if err := change(); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) hasSlice(name string) bool {
	return slices.ContainsFunc(a.slices, func(s *discoveryv1.EndpointSlice) bool { return s.Name == name })
}

// clear deletes the Services and EndpointSlices of all seeds.
func (w *world) clear(ctx context.Context) error {
	services, err := w.client.CoreV1().Services(namespace).List(ctx, metav1.ListOptions{})
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
	return w.client.DiscoveryV1().EndpointSlices(namespace).DeleteCollection(ctx, none, metav1.ListOptions{})
}

// putService creates a Service, or changes it. A change that the API does not
// allow deletes and creates it.
func (w *world) putService(ctx context.Context, s *corev1.Service) (*corev1.Service, error) {
	api := w.client.CoreV1().Services(namespace)
	live, err := api.Get(ctx, s.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		live, err = api.Create(ctx, s, metav1.CreateOptions{})
	case err == nil:
		changed := s.DeepCopy()
		changed.ResourceVersion = live.ResourceVersion
		live, err = api.Update(ctx, changed, metav1.UpdateOptions{})
		if apierrors.IsInvalid(err) {
			if err := w.deleteService(ctx, s.Name); err != nil {
				return nil, err
			}
			live, err = api.Create(ctx, s, metav1.CreateOptions{})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w:\n%s", err, asYAML(s))
	}
	if !equality.Semantic.DeepEqual(live.Status.LoadBalancer, s.Status.LoadBalancer) {
		live.Status = s.Status
		if live, err = api.UpdateStatus(ctx, live, metav1.UpdateOptions{}); err != nil {
			return nil, fmt.Errorf("%w:\n%s", err, asYAML(s))
		}
	}
	return live, nil
}

func (w *world) deleteService(ctx context.Context, name string) error {
	return w.client.CoreV1().Services(namespace).Delete(ctx, name, metav1.DeleteOptions{})
}

func (w *world) putSlice(ctx context.Context, s *discoveryv1.EndpointSlice) error {
	api := w.client.DiscoveryV1().EndpointSlices(namespace)
	live, err := api.Get(ctx, s.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = api.Create(ctx, s, metav1.CreateOptions{})
	case err == nil:
		changed := s.DeepCopy()
		changed.ResourceVersion = live.ResourceVersion
		_, err = api.Update(ctx, changed, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("%w:\n%s", err, asYAML(s))
	}
	return nil
}

func (w *world) deleteSlice(ctx context.Context, name string) error {
	return w.client.DiscoveryV1().EndpointSlices(namespace).Delete(ctx, name, metav1.DeleteOptions{})
}

func (w *world) setZone(ctx context.Context, zone string) error {
	node, err := w.client.CoreV1().Nodes().Get(ctx, "node1", metav1.GetOptions{})
	if err != nil {
		return err
	}
	node.Labels = map[string]string{}
	if zone != "" {
		node.Labels[corev1.LabelTopologyZone] = zone
	}
	_, err = w.client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
	return err
}
