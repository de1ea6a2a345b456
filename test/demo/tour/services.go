package tour

import (
	"github.com/nftproxy/nftproxy/test/demo/cluster"
	"github.com/nftproxy/nftproxy/test/demo/stage"
)

// services are the Services' ports that scenes call.
type services struct {
	web, dns, dnsTCP, checkout, cart, payments, paymentsUDP address
}

// address is one port of a Service, with the ways to reach it.
type address struct {
	*cluster.Service
	port  cluster.Port
	nodes map[string]cluster.Dual
}

// findServices returns the Services that scenes call. The error tells what the manifests lack.
func findServices(on *stage.Stage) (services, error) {
	var (
		all   services
		nodes = map[string]cluster.Dual{}
	)
	for _, node := range on.Lab.Nodes() {
		nodes[node.Name] = cluster.Dual{IPv4: node.IPv4, IPv6: node.IPv6}
	}
	for _, want := range []struct {
		into              *address
		service, protocol string
	}{
		{&all.web, "shop/web", "tcp"},
		{&all.dns, "kube-system/dns", "udp"},
		{&all.dnsTCP, "kube-system/dns", "tcp"},
		{&all.checkout, "shop/checkout", "tcp"},
		{&all.cart, "shop/cart", "tcp"},
		{&all.payments, "shop/payments", "tcp"},
		{&all.paymentsUDP, "shop/payments", "udp"},
	} {
		service, err := on.Service(want.service)
		if err != nil {
			return all, err
		}
		port, err := service.Port(want.protocol)
		if err != nil {
			return all, err
		}
		*want.into = address{service, port, nodes}
	}
	return all, nil
}

func (a address) call(from, to string, addrs cluster.Dual, port uint16, w want) call {
	return call{from: from, service: a.String(), to: to, protocol: a.port.Protocol, addrs: addrs, port: port, want: w}
}

func (a address) clusterIP(from string, w want) call {
	return a.call(from, "ClusterIP", a.ClusterIPs, a.port.Port, w)
}

func (a address) nodePort(node, from string, w want) call {
	return a.call(from, "NodePort of "+node, a.nodes[node], a.port.NodePort, w)
}

func (a address) externalIP(from string, w want) call {
	return a.call(from, "external IP", a.ExternalIPs, a.port.Port, w)
}

func (a address) loadBalancerIP(from string, w want) call {
	return a.call(from, "LB IP", a.LoadBalancerIPs, a.port.Port, w)
}
