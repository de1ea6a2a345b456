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
	coreinformers "k8s.io/client-go/informers/core/v1"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/proxier/translate"
)

// Config is what a Source needs.
type Config struct {
	// Client talks to the API server.
	Client kubernetes.Interface
	// NodeName is the name of this node's Node object. Other Nodes are not asked for.
	NodeName string
	// NeedPodCIDRs waits for the Node object's spec.podCIDRs before anything is told to be complete, as it does for the addresses.
	NeedPodCIDRs bool
	// ResyncPeriod is how often everything that is known is told again (configSyncPeriod), once a second at most. 0: never.
	ResyncPeriod time.Duration
	// ServiceCIDRs asks for the ServiceCIDR objects (networking.k8s.io/v1, Kubernetes 1.33).
	ServiceCIDRs bool
	// Handler receives what the API server tells.
	Handler Handler
}

// How long a source waits for what the handler would rather know before it begins. What comes later is told all the same.
const (
	nodeAddressesWait = 30 * time.Second
	podCIDRsWait      = 5 * time.Minute
	serviceCIDRsWait  = 5 * time.Second
)

// Source watches an API server.
type Source struct {
	config Config

	services, slices *cache.Reflector
	node, cidrs      cache.SharedIndexInformer // cidrs is nil if they are not asked for
	// told say whether all that there was of a kind at first was told.
	servicesTold, slicesTold, nodeTold, cidrsTold cache.InformerSynced
	// toldNode is the Node object that was told last.
	toldNode atomic.Pointer[corev1.Node]
}

// New returns a Source, which asks for nothing until Run.
func New(config Config) (*Source, error) {
	if config.Client == nil || config.Handler == nil || config.NodeName == "" {
		return nil, errors.New("informer: client, handler and node name must be given")
	}
	s := &Source{config: config}
	s.services, s.servicesTold = newReflector(services, servicesOf(config.Client), config.ResyncPeriod,
		config.Handler.SetService, config.Handler.DeleteService)
	s.slices, s.slicesTold = newReflector(endpointSlices, endpointSlicesOf(config.Client), config.ResyncPeriod,
		config.Handler.SetEndpointSlice, config.Handler.DeleteEndpointSlice)
	s.node = coreinformers.NewFilteredNodeInformer(config.Client, config.ResyncPeriod, nil, s.selectNode)
	if config.ServiceCIDRs {
		s.cidrs = networkinginformers.NewServiceCIDRInformer(config.Client, config.ResyncPeriod, nil)
	}
	for _, i := range s.informers() {
		if err := i.SetTransform(trim); err != nil {
			return nil, fmt.Errorf("informer: %w", err)
		}
	}
	return s, s.addHandlers()
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

// addHandlers connects the informers with the handler.
func (s *Source) addHandlers() error {
	h := s.config.Handler
	var errs [2]error
	s.nodeTold, errs[0] = handle(s.node, func(old, node *corev1.Node) {
		h.OnNodeUpdate(old, node)
		s.toldNode.Store(node)
	}, h.OnNodeDelete)
	if s.cidrs != nil {
		tell := func(*networkingv1.ServiceCIDR) { h.OnServiceCIDRsChanged(cidrsOf(s.cidrs.GetStore().List())) }
		s.cidrsTold, errs[1] = handle(s.cidrs, func(_, cidr *networkingv1.ServiceCIDR) { tell(cidr) }, tell)
	}
	return errors.Join(errs[:]...)
}

// handle calls these functions for what an informer tells; old is zero for a new object. What it returns says whether all objects of the first
// list were told.
func handle[T metav1.Object](i cache.SharedIndexInformer, set func(old, new T), remove func(T)) (cache.InformerSynced, error) {
	var none T
	r, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { set(none, obj.(T)) },
		UpdateFunc: func(old, obj any) {
			before, now := old.(T), obj.(T)
			// After the API server was away, everything is listed again, as new objects; what is told again by period are the old ones.
			again := any(before) == any(now)
			if again || before.GetResourceVersion() != now.GetResourceVersion() || before.GetUID() != now.GetUID() {
				set(before, now)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok { // it went while the API server could not be reached
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

// cidrsOf returns the CIDRs of ServiceCIDR objects, sorted, each once.
func cidrsOf(objects []any) []string {
	var cidrs []string
	for _, obj := range objects {
		cidrs = append(cidrs, obj.(*networkingv1.ServiceCIDR).Spec.CIDRs...)
	}
	slices.Sort(cidrs)
	return slices.Compact(cidrs)
}

// Run tells the handler what the API server has, and then every change, until ctx ends. An API server that cannot be reached is tried again
// for as long as it takes.
func (s *Source) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for _, i := range s.informers() {
		running.Go(func() { i.RunWithContext(ctx) })
	}
	for _, r := range []*cache.Reflector{s.services, s.slices} {
		running.Go(func() { r.RunWithContext(ctx) })
	}
	if !s.waitForNode(ctx) || !waitFor(ctx, 0, s.servicesTold, s.slicesTold) {
		return nil
	}
	if s.cidrs != nil && !waitFor(ctx, serviceCIDRsWait, s.cidrsTold) && ctx.Err() == nil {
		klog.InfoS("ServiceCIDRs are not known yet: addresses of the service ranges that no Service has are not dropped")
	}
	s.config.Handler.OnNodeSynced()
	s.config.Handler.OnEndpointSlicesSynced()
	s.config.Handler.OnServiceSynced()
	<-ctx.Done()
	return nil
}

// waitForNode waits until the Node object says what the handler wants to know of it, or for as long as it may. It returns false if ctx ended.
func (s *Source) waitForNode(ctx context.Context) bool {
	node := klog.KRef("", s.config.NodeName)
	if !waitFor(ctx, 0, s.nodeTold) {
		return false
	}
	if !waitFor(ctx, nodeAddressesWait, s.nodeHas(func(n *corev1.Node) bool { return len(translate.NodeIPs(n)) > 0 })) && ctx.Err() == nil {
		klog.ErrorS(nil, "Timed out waiting for the Node object and its addresses, going on without", "node", node)
	}
	if s.config.NeedPodCIDRs &&
		!waitFor(ctx, podCIDRsWait, s.nodeHas(func(n *corev1.Node) bool { return n.Spec.PodCIDR != "" || len(n.Spec.PodCIDRs) > 0 })) && ctx.Err() == nil {
		klog.ErrorS(nil, "Timed out waiting for the Node object's podCIDRs, going on without", "node", node)
	}
	return ctx.Err() == nil
}

// nodeHas says whether a Node object was told that is as it should be.
func (s *Source) nodeHas(ok func(*corev1.Node) bool) cache.InformerSynced {
	return func() bool {
		node := s.toldNode.Load()
		return node != nil && ok(node)
	}
}

// waitFor waits until all of these are true, for as long as it may; 0 is forever. It returns whether they are.
func waitFor(ctx context.Context, atMost time.Duration, conditions ...cache.InformerSynced) bool {
	if atMost > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, atMost)
		defer cancel()
	}
	pause := lookFirst
	for _, ok := range conditions {
		for !ok() {
			select {
			case <-ctx.Done():
				return false
			case <-time.After(pause):
				pause = min(pause*11/10, lookLast)
			}
		}
	}
	return true
}

// lookFirst and lookLast are the pauses between two looks whether what is waited for has come; they grow from one to the other.
const (
	lookFirst = 2 * time.Millisecond
	lookLast  = 100 * time.Millisecond
)
