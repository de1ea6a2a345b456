package proxier

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/translate"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

var (
	tenants     = flag.Uint64("tenants", 4, "number of tenants of BenchmarkRandomTenants")
	firstTenant = flag.Uint64("first-tenant", 1, "seed of the first of them")
)

// tenant is a user who may create Services in the namespace hostile.
type tenant struct {
	p *Proxier
	// services have these numbers of ports and endpoints.
	services, ports, endpoints int
	change                     func(i int, s *cluster.Service)
	// flap makes change number n.
	flap func(t *tenant, n int)
}

// service returns Service i of the tenant. Older Services have lower numbers.
func (t *tenant) service(i int) *cluster.Service {
	ip := netip.AddrFrom4([4]byte{10, 96, 200 + byte(i>>8), byte(i)})
	svc := tabletest.Service(fmt.Sprintf("service-%05d", i), ip.String(), nil)
	svc.Name.Namespace, svc.Created = "hostile", time.Unix(int64(i), 0)
	svc.Ports, _ = tabletest.Ports(t.ports)
	if t.change != nil {
		t.change(i, svc)
	}
	return svc
}

func (t *tenant) pass(svc *cluster.Service) {
	t.p.SetService(&translate.Service{Name: svc.Name, Service: svc})
}

// maxPerSlice is the largest number of endpoints in an EndpointSlice.
const maxPerSlice = 1000

// passSlice passes EndpointSlice n of Service i, without some endpoints.
func (t *tenant) passSlice(i, n, without int) {
	svc := t.service(i)
	name := translate.SliceName{Namespace: svc.Name.Namespace, Name: fmt.Sprintf("%s-%d", svc.Name.Name, n)}
	slice := &translate.EndpointSlice{Name: name, Service: svc.Name, Family: nft.IPv4}
	_, ports := tabletest.Ports(len(svc.Ports))
	for e := n*maxPerSlice + without; e < min(t.endpoints, (n+1)*maxPerSlice); e++ {
		endpoint := tabletest.Endpoint(netip.AddrFrom4([4]byte{100, 64 + byte(e>>16), byte(e >> 8), byte(e)}).String())
		endpoint.Source, endpoint.Ports = name.Name, ports
		slice.Endpoints = append(slice.Endpoints, endpoint)
	}
	t.p.SetEndpointSlice(slice)
}

func (t *tenant) create() {
	for i := range t.services {
		t.pass(t.service(i))
		for n := 0; n*maxPerSlice < t.endpoints; n++ {
			t.passSlice(i, n, 0)
		}
	}
}

// flapFirst makes endpoints of the first Service come and go, flapAll those of
// all Services in turn.
func flapFirst(endpoints int) func(*tenant, int) {
	return func(t *tenant, n int) { t.passSlice(0, 0, n%2*endpoints) }
}

func flapAll(t *tenant, n int) {
	for i := range 50 {
		t.passSlice((n*50+i)%t.services, 0, n*50/t.services%2)
	}
}

// recreate deletes and creates a number of Services in turn, all at once.
func recreate(services int) func(*tenant, int) {
	return func(t *tenant, n int) {
		if n%200 > 0 {
			return
		}
		for i := range services {
			if svc := t.service(i); n%400 == 0 {
				t.p.DeleteService(svc.Name)
			} else {
				t.pass(svc)
			}
		}
	}
}

// BenchmarkHostileServices measures how long a change of a Service waits until
// it is in the kernel, while a user of another namespace creates and changes
// Services. There are 1,000 other Services.
func BenchmarkHostileServices(b *testing.B) {
	for _, c := range []struct {
		name string
		tenant
	}{
		{"none", tenant{}},
		{"1000 ports x 190 endpoints, 100 flap", tenant{
			services: 1, ports: 1000, endpoints: 190, flap: flapFirst(100),
		}},
		{"namespace over its budget, the oldest flaps", tenant{
			services: 1001, ports: 1, endpoints: 500, flap: flapFirst(1),
			change: func(i int, s *cluster.Service) {
				if i == 0 {
					s.Ports, _ = tabletest.Ports(500)
				}
			},
		}},
		{"1000 Services x 190 endpoints that flap", tenant{services: 1000, ports: 1, endpoints: 190, flap: flapAll}},
		{"10000 ports x 10 endpoints", tenant{services: 1, ports: 10_000, endpoints: 10, flap: flapFirst(1)}},
		{"10 ports with affinity x 2000 endpoints, one flaps", tenant{
			services: 1, ports: 10, endpoints: 2000, flap: flapFirst(1),
			change: func(_ int, s *cluster.Service) { s.AffinityTimeout = time.Hour },
		}},
		{"one port with 300000 endpoints", tenant{services: 1, ports: 1, endpoints: 300_000, flap: flapFirst(1)}},
		{"20 namespaces x one port with 15000 endpoints at once", tenant{
			services: 20, ports: 1, endpoints: 15_000,
			change: func(i int, s *cluster.Service) { s.Name.Namespace = fmt.Sprint("hostile-", i) },
			flap:   recreate(20),
		}},
		{"two heavy Services that swap an external IP", tenant{
			services: 2, ports: 10, endpoints: 2000,
			change: func(_ int, s *cluster.Service) { s.AffinityTimeout = time.Hour },
			flap: func(t *tenant, n int) {
				for _, i := range []int{n % 2, 1 - n%2} {
					svc := t.service(i)
					if i == 0 {
						svc.ExternalIPs = tabletest.Addrs("192.0.2.99")
					}
					t.pass(svc)
				}
			},
		}},
	} {
		b.Run(c.name, c.run)
	}
}

// BenchmarkRandomTenants is like BenchmarkHostileServices, with random tenants.
func BenchmarkRandomTenants(b *testing.B) {
	for seed := *firstTenant; seed < *firstTenant+*tenants; seed++ {
		t := randomTenant(rand.New(rand.NewPCG(seed, 1)))
		b.Run(fmt.Sprintf("%d/%dx%dx%d", seed, t.services, t.ports, t.endpoints), t.run)
	}
}

// randomTenant returns a tenant with up to 200,000 pairs of a service port and
// an endpoint.
func randomTenant(r *rand.Rand) tenant {
	size := func(most int) int { return 1 + r.IntN(1+r.IntN(most)) } // small ones are frequent
	t := tenant{services: size(1000), ports: size(1000), endpoints: size(2000)}
	for t.services*t.ports*t.endpoints > 200_000 {
		t.services, t.ports, t.endpoints = size(t.services), size(t.ports), size(t.endpoints)
	}
	ips, balance, affinity := size(1+2000/t.services), cluster.Balance(r.IntN(3)), r.IntN(3) == 0
	external := r.IntN(2) == 0
	t.change = func(i int, s *cluster.Service) {
		switch {
		case affinity:
			s.AffinityTimeout = time.Hour
		default:
			s.Balance = balance
		}
		for n := 0; external && n < ips; n++ {
			s.ExternalIPs = append(s.ExternalIPs, netip.AddrFrom4([4]byte{198, 18, byte((i + n) >> 8), byte(i + n)}))
		}
	}
	t.flap = []func(*tenant, int){
		flapAll, flapFirst(1 + r.IntN(t.endpoints)),
		func(t *tenant, n int) { // Services come and go
			if i := n % t.services; n/t.services%2 == 0 {
				t.p.DeleteService(t.service(i).Name)
			} else {
				t.pass(t.service(i))
			}
		},
	}[r.IntN(3)]
	return t
}

func (t tenant) run(b *testing.B) {
	tabletest.NewNamespace(b)
	t.p = newTestProxier(b, sampleConfig(), nft.IPv4)
	t.p.OnServiceSynced()
	t.p.OnEndpointSlicesSynced()
	t.p.sink.SetNode(tabletest.Node())
	tabletest.PassNumbered(t.p.sink, 1000, tabletest.ManyEndpoints)
	victim := tabletest.Service("web", "10.96.250.1", nil)
	victim.Name.Namespace = "victim"
	t.p.sink.SetService(victim)
	tabletest.SetEndpoint(t.p.sink[0], victim.Name, tabletest.Endpoint("10.244.0.1"))
	conn := nstest.Open(b)
	startLoop(b, t.p)
	t.p.Sync()
	<-t.p.Synced()

	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		t.create()
		for n := 0; t.flap != nil; n++ {
			select {
			case <-stop:
				return
			case <-time.After(2 * time.Millisecond):
				t.flap(&t, n)
			}
		}
	}()
	b.ResetTimer()
	var total, longest time.Duration
	for n := range b.N {
		time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond)
		changed := *victim
		changed.ExternalIPs = []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, byte(n)})}
		start := time.Now()
		t.p.SetService(&translate.Service{Name: changed.Name, Service: &changed})
		for !hasFrontend(b, conn, changed.ExternalIPs[0]) {
			time.Sleep(500 * time.Microsecond)
		}
		took := time.Since(start)
		total, longest = total+took, max(longest, took)
	}
	b.StopTimer()
	close(stop)
	<-stopped
	b.ReportMetric(total.Seconds()*1e3/float64(b.N), "wait-ms")
	b.ReportMetric(longest.Seconds()*1e3, "longest-ms")
	b.ReportMetric(0, "ns/op")
}

// hasFrontend reports whether the kernel serves TCP port 80 of an address.
func hasFrontend(b *testing.B, conn *nft.Conn, addr netip.Addr) bool {
	set := &nft.Set{
		Name: "service-classes", Key: nft.Types(nft.TypeIPv4Addr, nft.TypeInetProto, nft.TypeInetService),
	}
	row := nft.Row{Set: set, Key: nft.Tuple{}.Addr(addr).Proto(uint8(cluster.TCP)).Port(80)}
	found, err := conn.FindRows(&nft.Table{Family: nft.IPv4, Name: ruleset.TableName}, []nft.Row{row})
	if err != nil {
		b.Fatal(err)
	}
	return found[0].Set != nil
}
