package main

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	core "k8s.io/client-go/informers/core/v1"
	discovery "k8s.io/client-go/informers/discovery/v1"
	networking "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/informer"
	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// runner reads the objects for a node until the context is done, as a proxy
// does. It calls synced when it has all objects.
type runner func(ctx context.Context, config *rest.Config, node string, synced func()) error

// resync is the default of configSyncPeriod.
const resync = 15 * time.Minute

// runProduct runs the informers of nftproxy.
func runProduct(ctx context.Context, config *rest.Config, node string, synced func()) error {
	client, err := apiclient.New(config)
	if err != nil {
		return err
	}
	source, err := informer.New(informer.Config{
		Client: client, NodeName: node, ResyncPeriod: resync, Handler: handler{synced},
	})
	if err != nil {
		return err
	}
	return source.Run(ctx)
}

// handler discards objects.
type handler struct{ synced func() }

func (h handler) OnServiceSynced() { h.synced() } // the last one

func (handler) OnNodeSynced()                             {}
func (handler) OnEndpointSlicesSynced()                   {}
func (handler) SetService(*translate.Service)             {}
func (handler) DeleteService(cluster.ServiceName)         {}
func (handler) SetEndpointSlice(*translate.EndpointSlice) {}
func (handler) DeleteEndpointSlice(translate.SliceName)   {}
func (handler) OnNodeUpdate(_, _ *corev1.Node)            {}
func (handler) OnNodeDelete(*corev1.Node)                 {}
func (handler) OnServiceCIDRsChanged([]string)            {}

// runUpstream runs the informers of kube-proxy: the Node's first, then all
// others (NewNodeManager and ProxyServer.Run of Kubernetes 1.36).
func runUpstream(ctx context.Context, config *rest.Config, node string, synced func()) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	choose := func(label, field string) func(*metav1.ListOptions) {
		return func(o *metav1.ListOptions) { o.LabelSelector, o.FieldSelector = label, field }
	}
	const all = metav1.NamespaceAll
	var running sync.WaitGroup
	defer running.Wait()
	for _, together := range [][]cache.SharedIndexInformer{
		{core.NewFilteredNodeInformer(client, resync, nil, choose("", nodeSelector+node))},
		{
			core.NewFilteredServiceInformer(client, all, resync, nil,
				choose("!"+translate.LabelServiceProxyName, "spec.clusterIP!=None")),
			discovery.NewFilteredEndpointSliceInformer(client, all, resync, nil,
				choose("!"+corev1.IsHeadlessService, "")),
			networking.NewServiceCIDRInformer(client, resync, nil),
		},
	} {
		var wait []cache.InformerSynced
		for _, one := range together {
			running.Go(func() { one.RunWithContext(ctx) })
			wait = append(wait, one.HasSynced)
		}
		cache.WaitForCacheSync(ctx.Done(), wait...)
	}
	if ctx.Err() == nil {
		synced()
	}
	return nil
}
