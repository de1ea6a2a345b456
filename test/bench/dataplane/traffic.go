package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/test/bench/stage"
	"github.com/nftproxy/nftproxy/test/cluster/objects"
	"github.com/nftproxy/nftproxy/test/lab"
)

// traffic is a kind of connections, or of requests over established flows.
type traffic struct {
	name        string
	kind        int // SOCK_STREAM or SOCK_DGRAM
	to          target
	clients     int  // that connect in turn; 0 if each connection has a new one
	established bool // requests over one flow
}

// target names what clients connect to.
type target string

// The targets. All but the last three need a proxy.
const (
	affinity target = "affinity"
	guarded1 target = "guarded by 1 prefix length"
	guarded4 target = "guarded by 4 prefix lengths"
	guarded  target = "guarded by 16 prefix lengths"
	hashed   target = "source hash"

	plainTCP  target = "TCP"
	plainUDP  target = "UDP"
	noService target = "not to a Service"
)

// knownClients is the number of clients with an endpoint of the Service with
// session affinity.
const knownClients = 64

// The kinds of traffic that others are compared with, or that need more work.
var (
	newTCP        = traffic{"TCP", unix.SOCK_STREAM, plainTCP, 1, false}
	knownClient   = traffic{"affinity, known client", unix.SOCK_STREAM, affinity, knownClients, false}
	unknownClient = traffic{"affinity, new client", unix.SOCK_STREAM, affinity, 0, false}
)

// traffics returns all kinds of traffic in the order of the tables.
func traffics() []traffic {
	return []traffic{
		newTCP,
		{"UDP", unix.SOCK_DGRAM, plainUDP, 1, false},
		{"TCP, not to a Service", unix.SOCK_STREAM, noService, 1, false},
		knownClient, unknownClient,
		{"TCP, " + string(guarded1), unix.SOCK_STREAM, guarded1, 1, false},
		{"TCP, " + string(guarded4), unix.SOCK_STREAM, guarded4, 1, false},
		{"TCP, " + string(guarded), unix.SOCK_STREAM, guarded, 1, false},
		{"TCP, " + string(hashed), unix.SOCK_STREAM, hashed, knownClients, false},
		{"established TCP", unix.SOCK_STREAM, plainTCP, 1, true},
		{"established UDP", unix.SOCK_DGRAM, plainUDP, 1, true},
	}
}

// special reports whether the traffic is to a Service that only proxies serve,
// and is compared with traffic to a plain Service too.
func (t traffic) special() bool { return t.to != plainTCP && t.to != plainUDP && t.to != noService }

// endpoints returns the number of endpoints of the Service.
func (t traffic) endpoints() int {
	if t.to == affinity {
		return affinityEndpoints
	}
	return endpoints
}

// balancerRange contains the LoadBalancer IPs.
var balancerRange = netip.MustParsePrefix("198.51.100.0/24")

// maxServices is the largest number of Services for plain TCP.
const maxServices = 60_000

// services are the numbers of the Services besides the many for plain TCP.
var services = map[target]int{
	plainUDP: maxServices, affinity: maxServices + 1, guarded1: maxServices + 2,
	guarded4: maxServices + 3, guarded: maxServices + 4, hashed: maxServices + 5,
}

// prefixLengths are the numbers of prefix lengths of the source ranges of
// guarded Services.
var prefixLengths = map[target]int{guarded1: 1, guarded4: 4, guarded: 16}

// address returns where clients connect to: the Service or, if there are no
// rules, its first endpoint. The plain TCP Service is one of many, in the
// middle.
func (t target) address(many int, rules string) netip.AddrPort {
	number, ok := services[t]
	if !ok {
		number = many / 2
	}
	switch {
	case t == noService || rules == noRules:
		return netip.AddrPortFrom(stage.Endpoints(number, endpoints)[0], stage.TargetPort)
	case prefixLengths[t] > 0:
		return netip.AddrPortFrom(lab.AddrIn(balancerRange, prefixLengths[t]), stage.ServicePort)
	}
	return stage.Frontend(number)
}

// createServices creates the Services besides the plain ones for TCP.
func createServices(ctx context.Context, s *stage.Stage) error {
	api := &objects.API{Client: s.Client, Namespace: stage.NamespaceName}
	for to, number := range services {
		n := traffic{to: to}.endpoints()
		service, slice := stage.NewService(number), stage.NewSlice(number, stage.Endpoints(number, n))
		adapt(to, service, slice)
		_, err := api.PutService(ctx, service)
		if err := errors.Join(err, api.PutSlice(ctx, slice)); err != nil {
			return fmt.Errorf("%s: %w", to, err)
		}
	}
	return nil
}

// adapt gives a Service what the target is about.
func adapt(to target, service *corev1.Service, slice *discoveryv1.EndpointSlice) {
	switch to {
	case plainUDP:
		service.Spec.Ports[0].Protocol, slice.Ports[0].Protocol = corev1.ProtocolUDP, ptr.To(corev1.ProtocolUDP)
	case affinity:
		service.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	case hashed:
		service.Annotations = map[string]string{"nftproxy.io/balance": "source-hash"}
	default:
		service.Spec.Type = corev1.ServiceTypeLoadBalancer
		service.Spec.LoadBalancerSourceRanges = sourceRanges(prefixLengths[to])
		ip := to.address(0, "").Addr().String()
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip}}
	}
}

// sourceRanges returns source ranges with that many lengths. The last and
// shortest one contains the clients.
func sourceRanges(lengths int) (all []string) {
	for i := range lengths - 1 {
		all = append(all, netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16}), clients.Bits()+1+i).String())
	}
	all = append(all, clients.String())
	slices.Reverse(all)
	return all
}
