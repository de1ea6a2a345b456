package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	"github.com/nftproxy/nftproxy/test/bench/stage"
	"github.com/nftproxy/nftproxy/test/lab"
)

// member is a node of the fleet, without rules.
type member struct {
	name   string
	stop   context.CancelFunc
	synced chan struct{}
	ended  chan error
}

func memberName(i int) string { return fmt.Sprintf("fleet-%04d", i) }

// createNodes creates the Node objects of members.
func (f *fleet) createNodes(ctx context.Context, n int) error {
	return stage.InParallel(ctx, 0, n, func(ctx context.Context, i int) error {
		at := lab.Namespace{
			Name: memberName(i), IPv4: lab.AddrIn(netip.MustParsePrefix("10.64.0.0/16"), i+1),
			IPv6: lab.AddrIn(netip.MustParsePrefix("fd00:64::/64"), i+1),
		}
		return f.Cluster.CreateNode(ctx, &at)
	})
}

// restConfig returns the configuration of a proxy's client of the API server.
func (f *fleet) restConfig() *rest.Config {
	return &rest.Config{
		Host: f.Cluster.URL(), BearerToken: f.token, QPS: 5, Burst: 10, Dial: f.from.DialContext,
		TLSClientConfig: rest.TLSClientConfig{CAData: f.Cluster.CA()},
		ContentConfig:   rest.ContentConfig{ContentType: runtime.ContentTypeProtobuf},
	}
}

// start starts a member with a connection of its own.
func (f *fleet) start(ctx context.Context, name string, run runner) *member {
	m := &member{name: name, synced: make(chan struct{}), ended: make(chan error, 1)}
	running, stop := context.WithCancel(ctx)
	m.stop = stop
	config := f.restConfig()
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := f.from.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		context.AfterFunc(running, func() { conn.Close() }) // fails if the API server ended it
		return countingConn{conn, &f.received}, nil
	}
	go func() { m.ended <- run(running, config, name, sync.OnceFunc(func() { close(m.synced) })) }()
	return m
}

// end ends a member and its connections.
func (m *member) end() error {
	m.stop()
	return <-m.ended
}

// await waits until members have all objects.
func await(ctx context.Context, members []*member) error {
	for _, m := range members {
		select {
		case <-m.synced:
		case err := <-m.ended:
			m.ended <- err
			return errors.Join(fmt.Errorf("%s ended", m.name), err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// endAll ends members.
func endAll(members []*member) error {
	var group errgroup.Group
	for _, m := range members {
		group.Go(m.end)
	}
	return group.Wait()
}

// countingConn counts what arrives.
type countingConn struct {
	net.Conn
	received *atomic.Int64
}

// Read implements net.Conn.
func (c countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.Add(int64(n))
	return n, err
}

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
// others (NewNodeManager and ProxyServer.Run of Kubernetes 1.37).
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
			if err := one.SetTransform(withoutManagedFields); err != nil {
				return err
			}
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

func withoutManagedFields(object any) (any, error) {
	if o, err := meta.Accessor(object); err == nil {
		o.SetManagedFields(nil)
	}
	return object, nil
}
