package doctor_test

import (
	"context"
	"iter"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/doctor"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// A Service that has the address of a node, of a pod or of another Service gets
// its connections.
func TestServiceAddresses(t *testing.T) {
	healthy(t, tabletest.Rules())
	for _, tt := range []struct {
		kind     ruleset.AddressKind
		addr     string
		result   doctor.Result
		contains string
	}{
		{ruleset.ExternalIP, "172.30.0.11", doctor.Warn, "\nns/web: ExternalIP 172.30.0.11 is an address of this node"},
		{ruleset.ExternalIP, "127.0.0.1", doctor.Warn, "127.0.0.1 is an address of this node"},
		{ruleset.ExternalIP, "fd00:30::11", doctor.Warn, "fd00:30::11 is an address of this node"},
		{ruleset.ExternalIP, "10.244.7.7", doctor.Warn, "10.244.7.7 is an address of a pod"},
		{ruleset.LoadBalancerIP, "10.244.7.7", doctor.Warn, "ns/web: LoadBalancerIP 10.244.7.7 is an address of a pod"},
		{ruleset.ExternalIP, "10.96.0.10", doctor.Warn, "10.96.0.10 is the ClusterIP of default/other"},
		{ruleset.ExternalIP, "10.96.0.20", doctor.OK, ""}, // its own
		{ruleset.ExternalIP, "10.96.0.99", doctor.Warn, "10.96.0.99 is in a service CIDR"},
		{ruleset.ExternalIP, "192.0.2.77", doctor.OK, ""},
		{ruleset.LoadBalancerIP, "192.0.2.77", doctor.OK, ""},
		{ruleset.LoadBalancerIP, "172.30.0.11", doctor.Info, "LoadBalancerIP 172.30.0.11 is an address of this node"},
		{ruleset.ExternalIP, "172.30.0.12", doctor.OK, ""}, // a neighbour
	} {
		services := func(context.Context) iter.Seq2[*table.ServiceView, error] {
			return func(yield func(*table.ServiceView, error) bool) {
				_ = yield(serviceView("default", "other", frontend(ruleset.ClusterIP, "10.96.0.10")), nil) &&
					yield(serviceView("ns", "web",
						frontend(ruleset.ClusterIP, "10.96.0.20"), frontend(tt.kind, tt.addr)), nil)
			}
		}
		expectation{"service-addresses", tt.result, tt.contains}.check(t, doctor.Config{
			Proxy: &answer.ProxyStatus{}, Services: services,
		})
	}
}

func serviceView(namespace, name string, frontends ...table.FrontendView) *table.ServiceView {
	return &table.ServiceView{
		ServiceName: cluster.ServiceName{Namespace: namespace, Name: name},
		Ports:       []table.PortView{{Port: 80, Frontends: frontends}, {Port: 81, Frontends: frontends}},
	}
}

func frontend(kind ruleset.AddressKind, addr string) table.FrontendView {
	a := netip.MustParseAddr(addr)
	return table.FrontendView{Family: nft.FamilyOf(a), Kind: kind, Address: a}
}
