package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// proxy measures a Proxier of IPv4 with its sync loop, since only a Proxier
// cleans stale flows. Its times are those of the Proxier's own metrics.
type proxy struct {
	*proxier.Proxier
	metrics *prometheus.Registry
	values  map[string]float64 // of the metrics, at the end of the last sync
	stop    context.CancelFunc
	loop    sync.WaitGroup
}

func newProxy() (*proxy, error) {
	config := newConfig()
	config.NodePortAddresses.CIDRs = []netip.Prefix{netip.PrefixFrom(address(nft.IPv4, nodeIPs, 0), 16).Masked()}
	inner, err := proxier.NewProxier(*config, nft.IPv4)
	if err != nil {
		return nil, err
	}
	p := &proxy{Proxier: inner, metrics: prometheus.NewRegistry()}
	if err := p.metrics.Register(p.Metrics()); err != nil {
		return nil, err
	}
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.loop.Go(func() { p.SyncLoop(ctx) })
	return p, nil
}

// Close ends the sync loop and closes the Proxier.
func (p *proxy) Close() error {
	p.stop()
	p.loop.Wait()
	return p.Proxier.Close()
}

// SetService hands over a Service as an object of the API.
func (p *proxy) SetService(svc *cluster.Service) {
	ip := svc.ClusterIPs[0].String()
	object := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: svc.Name.Namespace, Name: svc.Name.Name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: ip, ClusterIPs: []string{ip}},
	}
	for _, port := range svc.Ports {
		object.Spec.Ports = append(object.Spec.Ports, corev1.ServicePort{
			Name: port.Name, Protocol: apiProtocol(port.Protocol),
			Port: int32(port.Port), NodePort: int32(port.NodePort),
		})
	}
	p.OnServiceAdd(object)
}

// SetEndpoints hands over an EndpointSlice as an object of the API.
func (p *proxy) SetEndpoints(name cluster.ServiceName, source string, endpoints []*cluster.Endpoint) {
	object := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: name.Namespace, Name: source, Labels: map[string]string{discoveryv1.LabelServiceName: name.Name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, e := range endpoints {
		addrs := []string{e.Addr.String()}
		object.Endpoints = append(object.Endpoints, discoveryv1.Endpoint{Addresses: addrs, NodeName: &e.Node})
	}
	for _, port := range endpoints[0].Ports {
		object.Ports = append(object.Ports, discoveryv1.EndpointPort{
			Name: &port.Name, Protocol: ptr.To(apiProtocol(port.Protocol)), Port: ptr.To(int32(port.Port)),
		})
	}
	p.OnEndpointSliceAdd(object)
}

func apiProtocol(p cluster.Protocol) corev1.Protocol {
	if p == cluster.UDP {
		return corev1.ProtocolUDP
	}
	return corev1.ProtocolTCP
}

// The metrics that are read. The value of a histogram is its sum.
const (
	metricSync       = "kubeproxy_sync_proxy_rules_duration_seconds"
	metricFailures   = "kubeproxy_sync_proxy_rules_nftables_sync_failures_total"
	metricStaleFlows = "kubeproxy_conntrack_reconciler_sync_duration_seconds"
	metricKernel     = "nftproxy_commit_seconds_total"
	metricWrites     = "nftproxy_transactions_total"
	metricRefusals   = "nftproxy_refusals_total"
	metricConflicts  = "nftproxy_conflicts_total"
)

// sync waits until the process is idle, since stale flows are cleaned after
// the sync, in the background. Its figures cover everything since the last
// call: the sync loop may have written some of the changes before this one.
func (p *proxy) sync() (sample, error) {
	if err := makeFlow(); err != nil {
		return sample{}, err
	}
	p.Sync()
	before, after := p.values, p.values
	for after[metricSync] == before[metricSync] {
		err := awaitIdle()
		if err != nil {
			return sample{}, err
		}
		if after, err = p.read(); err != nil {
			return sample{}, err
		}
	}
	p.values = after
	if after[metricFailures]+after[metricRefusals]+after[metricConflicts] > 0 {
		return sample{}, errors.New("a sync failed, or a service port is not served")
	}
	return sample{
		Seconds:          after[metricSync] - before[metricSync],
		KernelSeconds:    after[metricKernel] - before[metricKernel],
		StaleFlowSeconds: after[metricStaleFlows] - before[metricStaleFlows],
		Transactions:     int(after[metricWrites] - before[metricWrites]),
	}, nil
}

// makeFlow makes a UDP flow: without any, the search for stale flows is
// skipped. The flow is tracked once the table is in the kernel.
func makeFlow() error {
	conn, err := net.Dial("udp", "127.0.0.1:9")
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte("x"))
	return err
}

// awaitIdle returns once the process did nearly nothing for longer than the
// cleaner of stale flows rests between two passes.
func awaitIdle() error {
	const rest, idle = 600 * time.Millisecond, 30 * time.Millisecond
	for {
		var before, after syscall.Rusage
		err := syscall.Getrusage(syscall.RUSAGE_SELF, &before)
		time.Sleep(rest)
		if err = errors.Join(err, syscall.Getrusage(syscall.RUSAGE_SELF, &after)); err != nil {
			return err
		}
		used := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
		if time.Duration(used) < idle {
			return nil
		}
	}
}

// read returns the values of all metrics.
func (p *proxy) read() (map[string]float64, error) {
	families, err := p.metrics.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather metrics: %w", err)
	}
	values := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.Metric {
			values[family.GetName()] += m.GetCounter().GetValue() + m.GetHistogram().GetSampleSum()
		}
	}
	return values, nil
}
