package cluster

import (
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
)

// read returns the services of the sample manifests by name.
func read(t *testing.T) map[string]*Service {
	t.Helper()
	services, err := Read(os.DirFS("../manifests"))
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*Service{}
	for _, s := range services {
		byName[s.String()] = s
	}
	return byName
}

func TestRead(t *testing.T) {
	services := read(t)
	dual := func(ipv4, ipv6 string) Dual { return Dual{netip.MustParseAddr(ipv4), netip.MustParseAddr(ipv6)} }
	want := &Service{
		Namespace: "shop", Name: "web", Type: "NodePort",
		ClusterIPs: dual("10.96.0.80", "fd00:96::80"), ExternalIPs: dual("192.0.2.80", "2001:db8::80"),
		Ports: []Port{{Name: "http", Protocol: "tcp", Port: 80, NodePort: 30080, TargetPort: 8080}},
		Endpoints: []Endpoint{
			{"web-1", "node1", dual("10.244.1.11", "fd00:244:1::11")},
			{"web-2", "node1", dual("10.244.1.12", "fd00:244:1::12")},
			{"web-3", "node2", dual("10.244.2.11", "fd00:244:2::11")},
		},
	}
	if got := services["shop/web"]; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	checkout := services["shop/checkout"]
	if checkout.LoadBalancerIPs != dual("192.0.2.40", "2001:db8::40") || len(checkout.SourceRanges) != 2 || len(checkout.Features) != 2 {
		t.Errorf("checkout: %+v", checkout)
	}
	if pods := checkout.PodsOn("node2"); !reflect.DeepEqual(pods, []string{"checkout-2"}) {
		t.Errorf("checkout's pods on node2: %v", pods)
	}
	if payments := services["shop/payments"]; len(payments.Endpoints) != 0 || payments.Ports[1].TargetPort != 9001 {
		t.Errorf("payments: %+v", payments)
	}
}

func TestPort(t *testing.T) {
	dns := read(t)["kube-system/dns"]
	if p, err := dns.Port("tcp"); err != nil || p.Name != "dns-tcp" {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := dns.Port("sctp"); err == nil {
		t.Error("no error for a protocol that the service does not have")
	}
}

// What is written says the same when it is read again.
func TestEndpointsManifest(t *testing.T) {
	for name, s := range read(t) {
		for count := range len(s.Endpoints) + 1 {
			manifest, err := s.EndpointsManifest(s.Endpoints[:count])
			if err != nil {
				t.Fatal(err)
			}
			service, err := os.ReadFile("../manifests/" + strings.TrimSuffix(s.EndpointsFile(), "-endpoints.yaml") + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			again, err := Read(fstest.MapFS{"a.yaml": {Data: service}, "b.yaml": {Data: manifest}})
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, manifest)
			}
			want := *s
			if want.Endpoints = s.Endpoints[:count]; count == 0 {
				want.Endpoints = nil
			}
			if len(again) != 1 || !reflect.DeepEqual(again[0], &want) {
				t.Errorf("%s with %d endpoints: read again %+v", name, count, again)
			}
		}
	}
}

func TestReadNamesTheBadManifest(t *testing.T) {
	for _, bad := range []string{
		"kind: Service\nspec: {colour: red}\n",
		"kind: Service\nspec: {clusterIPs: [nowhere]}\nmetadata: {namespace: shop, name: web}\n",
		"kind: [\n",
		"kind: Service\nmetadata: {namespace: shop, name: web}\n---\nkind: EndpointSlice\n" +
			"metadata: {namespace: shop, name: x, labels: {kubernetes.io/service-name: web}}\nendpoints: [{addresses: [10.0.0.1]}]\n",
	} {
		_, err := Read(fstest.MapFS{"bad.yaml": {Data: []byte(bad)}})
		if err == nil {
			t.Errorf("no error for %q", bad)
		} else if message := err.Error(); !strings.Contains(message, "bad.yaml") && !strings.Contains(message, "shop/") {
			t.Errorf("error does not name the object: %v", err)
		}
	}
}
