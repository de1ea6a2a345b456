package tour

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/demo/cluster"
)

// sample is laid out as nft does it.
const sample = `table ip kube-proxy {
	comment "rules for kube-proxy"
	set cluster-ips {
		type ipv4_addr
		elements = { 10.96.0.10, 10.96.0.80,
			     10.96.0.30 }
	}

	map service-ips {
		type ipv4_addr . inet_proto . inet_service : verdict
		comment "ClusterIP, external IP and LoadBalancer IP traffic"
		elements = { 10.96.0.10 . tcp . 53 comment "a, strange: } comment" : goto balance-2,
			     10.96.0.80 . tcp . 80 comment "shop/web:http" : goto balance-2 }
	}

	map service-endpoints {
		typeof ip daddr . meta l4proto . th dport . numgen random mod 1 : ip daddr . th dport
		elements = { 10.96.0.80 . tcp . 80 . 1 : 10.244.1.12 . 8080,
			     10.96.0.8 . tcp . 80 . 0 : 10.244.1.99 . 8080,
			     10.96.0.80 . tcp . 80 . 0 : 10.244.1.11 . 8080 }
	}

	set clients-17 {
		typeof ip saddr . numgen inc mod 1
		flags dynamic,timeout
		elements = { 172.30.0.11 . 4096 timeout 3h expires 2h59m55s952ms }
	}

	set firewall-sources-udp {
		type ipv4_addr . inet_service . ipv4_addr
	}

	chain services {
		ip daddr 10.96.0.0/16 meta mark set meta mark | 0x00004000
		ip daddr . meta l4proto . th dport vmap @service-ips
	}

	chain balance-2 {
		dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @service-endpoints
	}
}
`

func TestParseListing(t *testing.T) {
	objects := parseListing(sample)
	var names []string
	for _, o := range objects {
		names = append(names, o.kind+" "+o.name)
	}
	want := "set cluster-ips, map service-ips, map service-endpoints, set clients-17, set firewall-sources-udp, chain services, chain balance-2"
	if got := strings.Join(names, ", "); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	for _, test := range []struct {
		number         int
		body, elements []string
	}{
		{0, []string{"type ipv4_addr"}, []string{"10.96.0.10", "10.96.0.80", "10.96.0.30"}},
		{1, objects[1].body, []string{
			`10.96.0.10 . tcp . 53 comment "a, strange: } comment" : goto balance-2`,
			`10.96.0.80 . tcp . 80 comment "shop/web:http" : goto balance-2`,
		}},
		{4, []string{"type ipv4_addr . inet_service . ipv4_addr"}, nil},
		{6, []string{"dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 2 map @service-endpoints"}, nil},
	} {
		o := objects[test.number]
		if !reflect.DeepEqual(o.body, test.body) || !reflect.DeepEqual(o.elements, test.elements) {
			t.Errorf("%s: body %q, elements %q", o.name, o.body, o.elements)
		}
	}
}

// The order of rows and objects, and what the packet path wrote, make no difference; everything else does.
func TestCanonical(t *testing.T) {
	before := canonical(parseListing(sample))
	same := strings.NewReplacer("{ 10.96.0.10, 10.96.0.80", "{ 10.96.0.80, 10.96.0.10", "172.30.0.11 . 4096", "172.30.0.12 . 4097").Replace(sample)
	if after := canonical(parseListing(same)); after != before {
		t.Errorf("differ:\n%s\n%s", before, after)
	}
	for _, change := range [][2]string{
		{"10.96.0.30", "10.96.0.31"}, {"goto balance-2,", "goto balance-3,"}, {"mod 2", "mod 3"}, {"timeout\n", "timeout,interval\n"},
		{"chain services", "chain service"},
	} {
		if after := canonical(parseListing(strings.Replace(sample, change[0], change[1], 1))); after == before {
			t.Errorf("%s for %s makes no difference", change[1], change[0])
		}
	}
}

func TestExample(t *testing.T) {
	web := address{
		Service: &cluster.Service{
			Namespace: "shop", Name: "web", ClusterIPs: cluster.Dual{IPv4: netip.MustParseAddr("10.96.0.80")},
			Endpoints: []cluster.Endpoint{{Dual: cluster.Dual{IPv4: netip.MustParseAddr("10.244.1.11")}}},
		},
		port: cluster.Port{NodePort: 30080},
	}
	for _, test := range []struct {
		rows []string
		want string
	}{
		{nil, ""},
		{[]string{"z", "b"}, "b"},
		{[]string{"a", "10.96.0.80 . x", `z comment "shop/web:http" : goto`}, `z comment "shop/web:http" : goto`},
		{[]string{"a", "10.96.0.80 . x", "10.96.0.8 . x"}, "10.96.0.80 . x"},
		{[]string{"a", "tcp . 30080 . 0", "tcp . 300801 . 0"}, "tcp . 30080 . 0"},
		{[]string{"10.96.0.10", "10.96.0.80"}, "10.96.0.80"},
		{[]string{"10.244.1.111 . x", "10.244.1.11 . x"}, "10.244.1.11 . x"},
	} {
		if got := example(test.rows, web); got != test.want {
			t.Errorf("%q: got %q, want %q", test.rows, got, test.want)
		}
	}
}

func TestFollowService(t *testing.T) {
	endpoint := func(addr string) cluster.Endpoint {
		return cluster.Endpoint{Dual: cluster.Dual{IPv4: netip.MustParseAddr(addr)}}
	}
	web := address{
		Service: &cluster.Service{
			Namespace: "shop", Name: "web", ClusterIPs: cluster.Dual{IPv4: netip.MustParseAddr("10.96.0.80")},
			Endpoints: []cluster.Endpoint{endpoint("10.244.1.11"), endpoint("10.244.1.12")},
		},
		port: cluster.Port{Name: "http", TargetPort: 8080},
	}
	p, err := followService(parseListing(sample), web)
	if err != nil || !p.complete(web) || !strings.Contains(p.lookup, "@service-ips") || len(p.endpoints) != 2 {
		t.Errorf("%+v, %v", p, err)
	}
	for _, change := range [][2]string{
		{"shop/web:http", "shop/web:https"}, {"mod 2", "mod 3"}, {"10.244.1.12 . 8080", "10.244.1.13 . 8080"},
		{"10.96.0.80 . tcp . 80 . 0", "10.96.0.81 . tcp . 80 . 0"}, {`http" : goto balance-2`, `http" : goto balance-3`},
	} {
		p, err := followService(parseListing(strings.Replace(sample, change[0], change[1], 1)), web)
		if err != nil || p.complete(web) {
			t.Errorf("complete with %s for %s (error %v)", change[1], change[0], err)
		}
	}
	for _, missing := range []string{"map service-ips", "chain balance-2", "vmap @service-ips", "map service-endpoints"} {
		if _, err := followService(parseListing(strings.ReplaceAll(sample, missing, "chain something-else")), web); err == nil {
			t.Errorf("no error without %q", missing)
		}
	}
}
