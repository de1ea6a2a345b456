package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// Config is the configuration of a Source. Client, NodeName and Handler are
// required.
type Config struct {
	// Client is the client of the API server.
	Client *apiclient.Client
	// NodeName is the name of this node's Node object. Other Nodes are not
	// requested.
	NodeName string
	// NeedPodCIDRs makes Run wait for the Node's spec.podCIDRs before it
	// calls the Handler's Synced methods. It always waits for the Node's
	// addresses.
	NeedPodCIDRs bool
	// ResyncPeriod is the interval between deliveries of all known objects
	// (configSyncPeriod), at least one second. 0 disables them.
	ResyncPeriod time.Duration
	// ServiceCIDRs requests ServiceCIDRs (networking.k8s.io/v1, Kubernetes
	// 1.33).
	ServiceCIDRs bool
	// Handler receives the objects.
	Handler Handler
}

// Timeouts of Run before it calls the Synced methods. Objects that arrive
// later are delivered all the same.
const (
	nodeAddressesTimeout = 30 * time.Second
	podCIDRsTimeout      = 5 * time.Minute
	serviceCIDRsTimeout  = 5 * time.Second
)

// Source lists and watches the objects of an API server.
type Source struct {
	config Config

	services, slices *cache.Reflector
	node, cidrs      cache.SharedIndexInformer // cidrs is nil without Config.ServiceCIDRs

	// These report whether the first list of a kind was delivered.
	servicesSynced, slicesSynced, nodeSynced, cidrsSynced cache.InformerSynced

	lastNode atomic.Pointer[corev1.Node] // the last delivered version
}

// New returns a Source. Run starts it.
func New(config Config) (*Source, error) {
	if config.Client == nil || config.Handler == nil || config.NodeName == "" {
		return nil, errors.New("informer: Client, NodeName and Handler are required")
	}
	s := &Source{config: config}
	s.services, s.servicesSynced = newReflector(services, servicesOf(config.Client), config.ResyncPeriod,
		config.Handler.SetService, config.Handler.DeleteService)
	s.slices, s.slicesSynced = newReflector(endpointSlices, endpointSlicesOf(config.Client), config.ResyncPeriod,
		config.Handler.SetEndpointSlice, config.Handler.DeleteEndpointSlice)
	node := cache.NewFilteredListWatchFromClient(config.Client.Core, "nodes", metav1.NamespaceAll, s.selectNode)
	s.node = cache.NewSharedIndexInformer(node, &corev1.Node{}, config.ResyncPeriod, nil)
	if config.ServiceCIDRs {
		cidrs := cache.NewFilteredListWatchFromClient(config.Client.Networking, "servicecidrs", metav1.NamespaceAll,
			func(*metav1.ListOptions) {})
		s.cidrs = cache.NewSharedIndexInformer(cidrs, &networkingv1.ServiceCIDR{}, config.ResyncPeriod, nil)
	}
	for _, i := range s.informers() {
		if err := i.SetTransform(trim); err != nil {
			return nil, fmt.Errorf("informer: %w", err)
		}
	}
	return s, s.addHandlers()
}

// newReflector returns a reflector that calls set and remove for the objects
// of a collection. synced reports whether the first list was delivered.
func newReflector[N comparable, V any, O object](
	k kind[N, V, O], from collection, resync time.Duration, set func(V), remove func(N),
) (r *cache.Reflector, synced cache.InformerSynced) {
	const minResync = time.Second // as in client-go's informers
	if resync > 0 {
		resync = max(resync, minResync)
	}
	s := &store[N, V, O]{kind: k, set: set, remove: remove}
	r = cache.NewReflectorWithOptions(newListWatcher(k, from), k.new(), s,
		cache.ReflectorOptions{Name: k.name, ResyncPeriod: resync})
	return r, s.hasSynced
}

func (s *Source) selectNode(o *metav1.ListOptions) {
	o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, s.config.NodeName).String()
}

func (s *Source) informers() []cache.SharedIndexInformer {
	all := []cache.SharedIndexInformer{s.node}
	if s.cidrs != nil {
		all = append(all, s.cidrs)
	}
	return all
}

// addHandlers connects the informers with the Handler.
func (s *Source) addHandlers() error {
	h := s.config.Handler
	var errs [2]error
	s.nodeSynced, errs[0] = handle(s.node, func(old, node *corev1.Node) {
		h.OnNodeUpdate(old, node)
		s.lastNode.Store(node)
	}, h.OnNodeDelete)
	if s.cidrs != nil {
		deliver := func(*networkingv1.ServiceCIDR) { h.OnServiceCIDRsChanged(cidrsOf(s.cidrs.GetStore().List())) }
		s.cidrsSynced, errs[1] = handle(s.cidrs, func(_, cidr *networkingv1.ServiceCIDR) { deliver(cidr) }, deliver)
	}
	return errors.Join(errs[:]...)
}

// handle makes an informer call set and remove. The old object of a new one
// is zero. synced reports whether the first list was delivered.
func handle[T metav1.Object](
	i cache.SharedIndexInformer, set func(old, new T), remove func(T),
) (synced cache.InformerSynced, err error) {
	var none T
	r, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { set(none, obj.(T)) },
		UpdateFunc: func(old, obj any) {
			before, now := old.(T), obj.(T)
			// A resync delivers the same pointer. A list after a connection
			// loss delivers equal objects with new pointers, which are no
			// changes.
			resync := any(before) == any(now)
			if resync || before.GetResourceVersion() != now.GetResourceVersion() || before.GetUID() != now.GetUID() {
				set(before, now)
			}
		},
		DeleteFunc: func(obj any) {
			// The object was deleted during a connection loss.
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if last, ok := obj.(T); ok {
				remove(last)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("informer: %w", err)
	}
	return r.HasSynced, nil
}

// cidrsOf returns the CIDRs of ServiceCIDRs, sorted and without duplicates.
func cidrsOf(objects []any) []string {
	var cidrs []string
	for _, obj := range objects {
		cidrs = append(cidrs, obj.(*networkingv1.ServiceCIDR).Spec.CIDRs...)
	}
	slices.Sort(cidrs)
	return slices.Compact(cidrs)
}

// Run delivers the objects of the API server, and then every change, until
// ctx is done. If the API server is unreachable, it retries forever.
func (s *Source) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for _, i := range s.informers() {
		running.Go(func() { i.RunWithContext(ctx) })
	}
	for _, r := range []*cache.Reflector{s.services, s.slices} {
		running.Go(func() { r.RunWithContext(ctx) })
	}
	if !s.waitForNode(ctx) || !waitFor(ctx, 0, s.servicesSynced, s.slicesSynced) {
		return nil
	}
	if s.cidrs != nil && !waitFor(ctx, serviceCIDRsTimeout, s.cidrsSynced) && ctx.Err() == nil {
		klog.InfoS("Timed out waiting for ServiceCIDRs, not dropping packets to unused service addresses yet",
			"timeout", serviceCIDRsTimeout)
	}
	s.config.Handler.OnNodeSynced()
	s.config.Handler.OnEndpointSlicesSynced()
	s.config.Handler.OnServiceSynced()
	<-ctx.Done()
	return nil
}

// waitForNode waits for the Node's addresses and, with NeedPodCIDRs, its
// podCIDRs. It returns false if ctx is done.
func (s *Source) waitForNode(ctx context.Context) bool {
	if !waitFor(ctx, 0, s.nodeSynced) {
		return false
	}
	s.waitForNodeField(ctx, nodeAddressesTimeout, "status.addresses", func(n *corev1.Node) bool {
		return len(translate.NodeIPs(n)) > 0
	})
	if s.config.NeedPodCIDRs {
		s.waitForNodeField(ctx, podCIDRsTimeout, "spec.podCIDRs", func(n *corev1.Node) bool {
			return n.Spec.PodCIDR != "" || len(n.Spec.PodCIDRs) > 0
		})
	}
	return ctx.Err() == nil
}

func (s *Source) waitForNodeField(
	ctx context.Context, timeout time.Duration, name string, isSet func(*corev1.Node) bool,
) {
	delivered := func() bool {
		node := s.lastNode.Load()
		return node != nil && isSet(node)
	}
	if !waitFor(ctx, timeout, delivered) && ctx.Err() == nil {
		klog.ErrorS(nil, "Timed out waiting for a field of the Node, continuing without it",
			"node", klog.KRef("", s.config.NodeName), "field", name, "timeout", timeout)
	}
}
