package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/test/cluster/objects"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/random"
)

// steady is a Service to which each connection must succeed. Its endpoints
// never change, or are replaced gracefully.
type steady struct {
	*corev1.Service
	number   int
	ready    []string // endpoints
	leaving  string   // endpoint that is serving and terminating; empty for none
	graceful bool
}

//go:embed steady.yaml
var steadyManifests string

// createSteady creates the steady Services.
func (w *world) createSteady(ctx context.Context) error {
	var errs []error
	for i, text := range strings.Split(steadyManifests, "---\n") {
		s := &steady{Service: new(corev1.Service), number: i}
		if err := yaml.UnmarshalStrict([]byte(text), s.Service); err != nil {
			return fmt.Errorf("steady.yaml: %w", err)
		}
		s.ready, s.graceful = strings.Fields(s.Annotations["endpoints"]), strings.HasPrefix(s.Name, "graceful-")
		s.Annotations = nil
		w.steady = append(w.steady, s)
		_, err := w.api.PutService(ctx, s.Service)
		errs = append(errs, w.putEndpoints(ctx, s), err)
	}
	return errors.Join(errs...)
}

// putEndpoints writes the EndpointSlices of a steady Service.
func (w *world) putEndpoints(ctx context.Context, s *steady) error {
	for f := range families() {
		slice := random.NewSlice(s.Name, fmt.Sprintf("%s-%d", s.Name, f), f)
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
				Name: ptr.To(strings.ToLower(string(protocol))), Protocol: ptr.To(protocol),
				Port: ptr.To[int32](random.FirstTarget),
			})
		}
		for _, name := range append(slices.Clone(s.ready), s.leaving) {
			if name == "" {
				continue
			}
			e, leaving := random.AddEndpoint(slice, w.pods[name][f]), name == s.leaving
			e.NodeName = ptr.To(lab.NodeOf(name))
			e.Conditions = discoveryv1.EndpointConditions{
				Ready: ptr.To(!leaving), Serving: ptr.To(true), Terminating: ptr.To(leaving),
			}
		}
		if err := w.api.PutSlice(ctx, slice); err != nil {
			return err
		}
	}
	return nil
}

// advance makes the next step of a graceful replacement: it adds an endpoint,
// marks another one as serving and terminating, and removes it.
func (s *steady) advance(r *rand.Rand) {
	switch {
	case s.leaving != "":
		s.leaving = ""
	case len(s.ready) > s.number%3+1:
		s.leaving, s.ready = s.ready[0], s.ready[1:]
	default:
		free := slices.DeleteFunc([]string{"a1", "a2", "b1", "b2"}, func(name string) bool {
			return slices.Contains(s.ready, name)
		})
		s.ready = append(s.ready, free[r.IntN(len(free))])
	}
}

// attack is a Service that a user may create to burden all nodes.
type attack struct {
	ports, externalIPs, sourceRanges int
	slices, endpoints                int // EndpointSlices, and endpoints of each
	affinity                         bool
	flaps                            int // how often an endpoint goes and comes
}

func attacks() []attack {
	return []attack{
		{ports: 20, externalIPs: 300, slices: 5, endpoints: 100},
		{ports: 6, sourceRanges: 20_000, slices: 1, endpoints: 3},
		{ports: 50, externalIPs: 20_000},
		{ports: 2, slices: 200, endpoints: 1},
		{ports: 10, slices: 2, endpoints: 1000, affinity: true, flaps: 20},
	}
}

// hostileName is the name of the Service and of its namespace.
const hostileName = "hostile"

// createHostile creates a hostile Service and deletes it after a time. It
// returns the longest time until the proxies followed a change of another
// Service.
func (f *faults) createHostile(ctx context.Context, _ *node, d draw) (longest time.Duration, err error) {
	a := attacks()[d.number%len(attacks())]
	api := &objects.API{Client: f.world.Client, Namespace: hostileName}
	steps := []func(context.Context) error{
		func(ctx context.Context) error { return a.create(ctx, api) },
		func(ctx context.Context) error { return a.flap(ctx, api) },
		api.Clear,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return 0, errors.Join(err, api.Clear(context.WithoutCancel(ctx)))
		}
		took, err := follow(ctx, f.world.nodes...)
		if err != nil {
			return 0, err
		}
		longest = max(longest, took)
		lab.Sleep(ctx, d.lasts/2)
	}
	return longest, nil
}

func (a attack) create(ctx context.Context, api *objects.API) error {
	_, err := api.PutService(ctx, a.service())
	for i := 0; i < a.slices && err == nil; i++ {
		err = api.PutSlice(ctx, a.slice(i))
	}
	return err
}

// flap removes an endpoint of the first EndpointSlice and adds it again.
func (a attack) flap(ctx context.Context, api *objects.API) (err error) {
	for i := 0; i < 2*a.flaps && err == nil; i++ {
		slice := a.slice(0)
		if i%2 == 0 {
			slice.Endpoints = slice.Endpoints[1:]
		}
		err = api.PutSlice(ctx, slice)
	}
	return err
}

// hostileIPs are the external IPs, and hostileTargets the endpoints, of hostile
// Services. No packet is sent to them.
var (
	hostileIPs     = netip.MustParsePrefix("198.18.0.0/16")
	hostileTargets = netip.MustParsePrefix("198.19.0.0/16")
)

func (a attack) service() *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: hostileName, Namespace: hostileName}}
	for i := range a.ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("port-", i), Port: int32(1000 + i)})
	}
	for i := range a.externalIPs {
		s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, lab.AddrIn(hostileIPs, i+1).String())
	}
	for i := range a.sourceRanges {
		addr := netip.AddrFrom4([4]byte{100, byte(i >> 8), byte(i), 0})
		s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges,
			netip.PrefixFrom(addr, 24+i%2).String())
	}
	if a.sourceRanges > 0 {
		s.Spec.Type, s.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeLoadBalancer, ptr.To(false)
		ip, mode := lab.AddrIn(hostileIPs, 1<<15).String(), corev1.LoadBalancerIPModeVIP
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip, IPMode: &mode}}
	}
	if a.affinity {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	return s
}

func (a attack) slice(number int) *discoveryv1.EndpointSlice {
	s := random.NewSlice(hostileName, fmt.Sprint(hostileName, "-", number), 0)
	s.Namespace = hostileName
	for _, port := range a.service().Spec.Ports {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &port.Name, Port: ptr.To[int32](8080)})
	}
	for i := range a.endpoints {
		random.AddEndpoint(s, lab.AddrIn(hostileTargets, number*a.endpoints+i+1))
	}
	return s
}
