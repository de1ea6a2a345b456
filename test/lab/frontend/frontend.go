// Package frontend lists the frontends of a Service, by the objects of the API
// and not by the code of the proxy. They are the destinations of attempts.
package frontend

import (
	"context"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/test/lab"
)

// Kind is a kind of frontend.
type Kind string

// The kinds.
const (
	ClusterIP      Kind = "ClusterIP"
	ExternalIP     Kind = "external IP"
	LoadBalancerIP Kind = "LoadBalancer IP"
	NodePort       Kind = "NodePort"
)

// Frontend is an address at which clients reach a port of a Service.
type Frontend struct {
	Kind    Kind
	Network string // tcp, udp or sctp
	To      netip.AddrPort
}

// String returns the network and the address.
func (f Frontend) String() string { return f.Network + " " + f.To.String() }

// Probe makes an attempt to reach the frontend.
func (f Frontend) Probe(ctx context.Context, from *lab.Namespace, options lab.ProbeOptions) lab.Result {
	return lab.Probe(ctx, from, f.Network, f.To, options)
}

// Of returns the frontends of a Service, with the NodePorts at addresses
// of nodes. It ignores host names. It includes Services that proxies must
// ignore.
func Of(s *corev1.Service, nodes ...netip.Addr) (all []Frontend) {
	for _, p := range s.Spec.Ports {
		add := func(kind Kind, number int32, ips ...string) {
			for _, ip := range ips {
				if addr, err := netip.ParseAddr(ip); err == nil && number != 0 {
					to := netip.AddrPortFrom(addr, uint16(number))
					all = append(all, Frontend{kind, strings.ToLower(string(p.Protocol)), to})
				}
			}
		}
		add(ClusterIP, p.Port, s.Spec.ClusterIPs...)
		add(ExternalIP, p.Port, s.Spec.ExternalIPs...)
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			add(LoadBalancerIP, p.Port, ingress.IP)
		}
		for _, node := range nodes {
			add(NodePort, p.NodePort, node.String())
		}
	}
	return all
}
