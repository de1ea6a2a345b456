package informer

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/proxier/cluster"
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
	// Handler receives the objects.
	Handler Handler
}

// Handler receives the objects of the API server. *proxier.Proxier implements
// it. Its methods are called from several goroutines and must not modify the
// objects.
//
// Each method that ends in Synced is called once, after all objects that
// existed at the start were delivered: first OnNodeSynced, then the others.
type Handler interface {
	SetService(*translate.Service)
	DeleteService(cluster.ServiceName)
	OnServiceSynced()

	SetEndpointSlice(*translate.EndpointSlice)
	DeleteEndpointSlice(translate.SliceName)
	OnEndpointSlicesSynced()

	// OnNodeUpdate is also called for a new Node, with old == nil.
	OnNodeUpdate(old, new *corev1.Node)
	OnNodeDelete(node *corev1.Node)
	OnNodeSynced()

	// OnServiceCIDRsChanged is called with the CIDRs of all ServiceCIDRs,
	// sorted and without duplicates.
	OnServiceCIDRsChanged(cidrs []string)
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
	config     Config
	reflectors []*cache.Reflector // one for each kind

	// These report whether the first list of a kind was delivered.
	servicesSynced, slicesSynced, nodeSynced, cidrsSynced cache.InformerSynced

	lastNode atomic.Pointer[corev1.Node] // the last delivered version
}

// New returns a Source. Run starts it.
func New(config Config) (*Source, error) {
	if config.Client == nil || config.Handler == nil || config.NodeName == "" {
		return nil, errors.New("informer: Client, NodeName and Handler are required")
	}
	s, h := &Source{config: config}, config.Handler
	s.servicesSynced = watchKind(s, services, h.SetService, h.DeleteService)
	s.slicesSynced = watchKind(s, endpointSlices, h.SetEndpointSlice, h.DeleteEndpointSlice)
	own := nodes
	own.fields = fields.OneTermEqualSelector(metav1.ObjectNameField, config.NodeName).String()
	s.nodeSynced = watchKind(s, own, s.setNode, s.deleteNode)
	known := make(map[string][]string) // CIDRs by the name of the object
	s.cidrsSynced = watchKind(s, serviceCIDRs, func(c *networkingv1.ServiceCIDR) {
		known[c.Name] = c.Spec.CIDRs
		h.OnServiceCIDRsChanged(union(known))
	}, func(name string) {
		delete(known, name)
		h.OnServiceCIDRsChanged(union(known))
	})
	return s, nil
}

// watchKind makes s call set and remove for the objects of a kind. synced
// reports whether the first list was delivered.
func watchKind[N comparable, V any, O object](
	s *Source, k kind[N, V, O], set func(V), remove func(N),
) (synced cache.InformerSynced) {
	const minResync = time.Second // as in client-go's informers
	resync := s.config.ResyncPeriod
	if resync > 0 {
		resync = max(resync, minResync)
	}
	store := &store[N, V, O]{kind: k, set: set, remove: remove}
	s.reflectors = append(s.reflectors, cache.NewReflectorWithOptions(k.listWatcher(s.config.Client), k.new(), store,
		cache.ReflectorOptions{Name: k.name, ResyncPeriod: resync}))
	return store.hasSynced
}

func (s *Source) setNode(node *corev1.Node) {
	s.config.Handler.OnNodeUpdate(s.lastNode.Load(), node)
	s.lastNode.Store(node)
}

func (s *Source) deleteNode(string) { s.config.Handler.OnNodeDelete(s.lastNode.Swap(nil)) }

// union returns the CIDRs of all ServiceCIDRs, sorted and without duplicates.
func union(known map[string][]string) []string {
	cidrs := slices.Concat(slices.Collect(maps.Values(known))...)
	slices.Sort(cidrs)
	return slices.Compact(cidrs)
}

// Run delivers the objects of the API server, and then every change, until
// ctx is done. If the API server is unreachable, it retries forever.
func (s *Source) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for _, r := range s.reflectors {
		running.Go(func() { r.RunWithContext(ctx) })
	}
	if !s.waitForNode(ctx) || !waitFor(ctx, 0, s.servicesSynced, s.slicesSynced) {
		return nil
	}
	if !waitFor(ctx, serviceCIDRsTimeout, s.cidrsSynced) && ctx.Err() == nil {
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

// waitFor waits until all conditions are met, ctx is done, or the timeout is
// over. A timeout of 0 means none. It reports whether the conditions are
// met.
func waitFor(ctx context.Context, timeout time.Duration, conditions ...cache.InformerSynced) bool {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	// Most conditions are met soon after the start, so the first checks are
	// frequent.
	poll := wait.Backoff{
		Duration: 2 * time.Millisecond, Factor: 1.02, Cap: 100 * time.Millisecond, Steps: math.MaxInt,
	}
	return poll.DelayFunc().Until(ctx, true, false, func(context.Context) (bool, error) {
		for _, met := range conditions {
			if !met() {
				return false, nil
			}
		}
		return true, nil
	}) == nil
}
