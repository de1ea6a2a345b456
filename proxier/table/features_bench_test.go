package table_test

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

var featureScale = flag.Float64("scale", 1, "factor for the sizes of BenchmarkFeatures")

// feature is a use of Services.
type feature struct {
	name string // of the objects that are counted
	size int    // the larger number of objects
	// shape returns the number of Services for n objects, and the numbers of
	// ports and endpoints of each.
	shape func(n int) (services, ports, endpoints int)
	// use makes Service number i use the feature; nil for none.
	use      func(svc *cluster.Service, i int)
	families []nft.Family // nil for IPv4
	// nodePortIPs is the number of addresses that NodePorts listen on; 0 for
	// all addresses of the node.
	nodePortIPs int
}

func features() []*feature {
	services := func(endpoints int) func(int) (int, int, int) {
		return func(n int) (int, int, int) { return n, 1, endpoints }
	}
	nodePort := func(i int) uint16 { return uint16(30_000 + i) }
	return []*feature{
		{name: "services", size: 10_000, shape: services(10)},
		{name: "k135639", size: 5_006, shape: services(50)}, // workloads of reports, as in bench-scale
		{name: "k139513", size: 44_125, shape: services(1)},
		{name: "k126013", size: 10_000, shape: services(2)},
		{name: "limit", size: 100_000, shape: services(2)},
		{name: "affinity", size: 2_000, shape: services(10), use: func(svc *cluster.Service, _ int) {
			svc.AffinityTimeout = 3 * time.Hour
		}},
		{name: "hashed", size: 10_000, shape: services(10), use: func(svc *cluster.Service, i int) {
			svc.Balance, svc.Name.Namespace = cluster.BalanceSourceHash, fmt.Sprintf("bench-%d", i%10)
		}},
		{name: "source-ranges", size: 1_000, shape: services(2), use: func(svc *cluster.Service, i int) {
			loadBalancer(svc, i, 50)
		}},
		{name: "local", size: 2_000, shape: services(10), use: func(svc *cluster.Service, i int) {
			loadBalancer(svc, i, 0)
			svc.ExternalPolicy, svc.Ports[0].NodePort = cluster.PolicyLocal, nodePort(i)
		}},
		{name: "guarded-local", size: 1_000, shape: services(2), use: func(svc *cluster.Service, i int) {
			loadBalancer(svc, i, 5)
			svc.ExternalPolicy = cluster.PolicyLocal
		}},
		{name: "endpoints", size: 5_000, shape: func(n int) (int, int, int) { return 1, 1, n }},
		{name: "ports", size: 500, shape: func(n int) (int, int, int) { return 1, n, 100 }},
		{name: "udp-nodeports", size: 500, shape: services(10), nodePortIPs: 500,
			use: func(svc *cluster.Service, i int) {
				svc.Ports[0].Protocol, svc.Ports[0].NodePort = cluster.UDP, nodePort(i)
			}},
		{name: "dual-stack", size: 5_000, shape: services(10), families: []nft.Family{nft.IPv4, nft.IPv6}},
	}
}

// loadBalancer gives a Service a LoadBalancer IP and a number of source ranges,
// which are not adjacent.
func loadBalancer(svc *cluster.Service, i, ranges int) {
	svc.LoadBalancerIPs = []netip.Addr{numberedAddr(nft.IPv4, 198, i)}
	for r := range ranges {
		svc.SourceRanges = append(svc.SourceRanges, netip.PrefixFrom(netip.AddrFrom4([4]byte{100, byte(2 * r)}), 16))
	}
}

// numberedAddr returns address number i of a network.
func numberedAddr(f nft.Family, network byte, i int) netip.Addr {
	first := netip.AddrFrom4([4]byte{network})
	if f == nft.IPv6 {
		first = netip.AddrFrom16([16]byte{0: 0xfd, 12: network})
	}
	return addrAfter(first.String(), i)
}

// BenchmarkFeatures measures each feature at two sizes, one four times the
// other: the start in an empty namespace, the restart on the present table, and
// changes of a Service that uses the feature and of a plain one. It reports the
// growth of each time, which is 4 if the costs are linear.
func BenchmarkFeatures(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(20)) // as the command does
	for _, f := range features() {
		b.Run(f.name, func(b *testing.B) {
			var smaller map[string]time.Duration
			small := max(1, int(float64(f.size)**featureScale)/featureGrowth)
			for _, n := range []int{small, featureGrowth * small} {
				b.Run(fmt.Sprint(n), func(b *testing.B) {
					tabletest.NewNamespace(b)
					m := newFeatureBench(f, n, smaller)
					m.run(b)
					smaller = m.times
				})
			}
		})
	}
}

// featureGrowth is the larger size of a feature divided by the smaller one.
const featureGrowth = 4

// featureBench measures a feature at one size.
type featureBench struct {
	namespace      *os.File // in which Tables are opened: each operation has a goroutine of its own
	config         table.Config
	node           *cluster.Node
	families       []nft.Family
	services       []*featureService // the last one is plain
	last           int               // number of an endpoint
	tables         []*table.Table
	times, smaller map[string]time.Duration // of operations, at this size and at the smaller one
}

func newFeatureBench(f *feature, n int, smaller map[string]time.Duration) *featureBench {
	m := &featureBench{
		config: sampleConfig(), node: tabletest.Node(), families: f.families, times: map[string]time.Duration{},
		smaller: smaller,
	}
	limits := keep.DefaultLimits()
	limits.Burst = time.Hour // all changes are in one namespace, and none must wait for its turn
	m.config.Limits = &limits
	for i := range f.nodePortIPs {
		m.config.Rules.NodePortAddresses.CIDRs = tabletest.Prefixes("172.30.0.0/16")
		m.node.NodePortIPs = append(m.node.NodePortIPs, numberedAddr(nft.IPv4, 172, 30<<16+i))
	}
	if m.families == nil {
		m.families = []nft.Family{nft.IPv4}
	}
	count, ports, endpoints := f.shape(n)
	for i := range count {
		s := m.newService(i, ports, endpoints)
		if f.use != nil {
			f.use(s.spec, i)
		}
	}
	m.newService(count, 1, 10)
	return m
}

func (m *featureBench) run(b *testing.B) {
	nstest.ResetPeakMemory(b)
	var err error
	if m.namespace, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		b.Fatal(err)
	}
	defer m.namespace.Close()
	defer m.close(b)
	m.measure(b, "start", func() {
		for _, f := range m.families {
			table := "table " + f.String() + " " + ruleset.TableName
			tabletest.LoadNFT(b, "add "+table+"\ndelete "+table) // it may not exist
		}
		m.close(b)
	}, func() { m.start(b) })
	m.measure(b, "restart", func() { m.close(b) }, func() { m.start(b) })
	m.changes(b, "", m.services[(len(m.services)-1)/2])
	m.changes(b, "plain-", m.services[len(m.services)-1])
}

// start passes all Services to new Tables, and syncs.
func (m *featureBench) start(b *testing.B) {
	tables, err := table.New(m.config, m.families...)
	for _, t := range tables {
		t.SetNode(m.node)
		err = errors.Join(err, t.Setup())
	}
	if err != nil {
		b.Fatal(err)
	}
	m.tables = tables
	for _, s := range m.services {
		for _, t := range m.tables {
			t.SetService(s.spec)
			for first := 0; first < len(s.endpoints); first += sliceSize {
				s.pass(t, first/sliceSize)
			}
		}
	}
	m.sync(b)
}

// close closes the Tables. They stay in the kernel.
func (m *featureBench) close(b *testing.B) {
	for _, t := range m.tables {
		if err := t.Close(); err != nil {
			b.Error(err)
		}
	}
	m.tables = nil
}

func (m *featureBench) sync(b *testing.B) {
	for _, t := range m.tables {
		tabletest.Sync(b, t)
		if s := t.Stats(); s.Refusals+s.Conflicts > 0 {
			b.Fatalf("a service port is not served: %+v", s)
		}
	}
}

// changes measures changes of a Service. Each operation is followed by one that
// is not measured, so that the Service keeps its number of endpoints.
func (m *featureBench) changes(b *testing.B, prefix string, s *featureService) {
	change := func(edit func(next int) (changed int)) func() {
		return func() {
			before := m.tables[0].Stats().Transactions
			m.last += localEvery - m.last%localEvery // on this node
			changed := edit(m.last)
			for _, t := range m.tables {
				s.pass(t, changed/sliceSize)
			}
			m.sync(b)
			if m.tables[0].Stats().Transactions == before {
				b.Fatal("the sync wrote nothing")
			}
		}
	}
	add := change(func(next int) int {
		s.endpoints = append(s.endpoints, next)
		return len(s.endpoints) - 1
	})
	remove := change(func(int) int {
		s.endpoints = s.endpoints[:len(s.endpoints)-1]
		return len(s.endpoints)
	})
	m.measure(b, prefix+"endpoint-replaced", func() {}, change(func(next int) int {
		s.endpoints[0] = next
		return 0
	}))
	add()
	m.measure(b, prefix+"endpoint-added", remove, add)
	m.measure(b, prefix+"endpoint-removed", add, remove)
	remove()
}

// measure measures an operation, but not prepare.
func (m *featureBench) measure(b *testing.B, name string, prepare, operation func()) {
	b.Run(name, func(b *testing.B) {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Setns(int(m.namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			b.Fatal(err)
		}
		var kernel time.Duration
		b.StopTimer()
		b.ResetTimer()
		for range b.N {
			prepare()
			before := m.commitTime()
			b.StartTimer()
			operation()
			b.StopTimer()
			kernel += m.commitTime() - before
		}
		m.times[name] = b.Elapsed() / time.Duration(b.N)
		b.ReportMetric(float64(kernel.Microseconds())/float64(b.N), "kernel-µs/op")
		if before := m.smaller[name]; before > 0 {
			b.ReportMetric(float64(m.times[name])/float64(before), "growth")
		}
		if name == "restart" {
			reportMemory(b)
		}
	})
}

func (m *featureBench) commitTime() (sum time.Duration) {
	for _, t := range m.tables {
		sum += t.Stats().CommitTime
	}
	return sum
}

// reportMemory reports the heap in use at rest, and the peak of the resident
// memory.
func reportMemory(b *testing.B) {
	runtime.GC()
	runtime.GC() // frees what has finalizers
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	b.ReportMetric(float64(stats.HeapInuse)/1000, "heap-kB")
	b.ReportMetric(float64(nstest.PeakMemory(b))/1000, "peak-RSS-kB")
}

const (
	// localEvery is the share of endpoints on this node: one in five. It
	// matters where a traffic policy is Local.
	localEvery = 5
	// sliceSize is the number of endpoints that the control plane puts into an
	// EndpointSlice.
	sliceSize = 100
)

// featureService is a Service with the numbers of its endpoints. The first one
// is on this node.
type featureService struct {
	spec      *cluster.Service
	endpoints []int
}

func (m *featureBench) newService(i, ports, endpoints int) *featureService {
	spec := tabletest.NumberedService(i)
	spec.Families, spec.ClusterIPs, spec.Ports = m.families, nil, nil
	for _, f := range m.families {
		spec.ClusterIPs = append(spec.ClusterIPs, numberedAddr(f, 11, i))
	}
	for p := range ports {
		spec.Ports = append(spec.Ports, cluster.ServicePort{
			Name: fmt.Sprint("port-", p), Protocol: cluster.TCP, Port: uint16(1000 + p),
		})
	}
	s := &featureService{spec: spec}
	m.last += localEvery - m.last%localEvery
	for range endpoints {
		s.endpoints = append(s.endpoints, m.last)
		m.last++
	}
	m.services = append(m.services, s)
	return s
}

// pass passes an EndpointSlice to the Table of a family.
func (s *featureService) pass(t *table.Table, slice int) {
	source := fmt.Sprintf("%s-%d", t.Family(), slice)
	var ports []cluster.EndpointPort
	for i, p := range s.spec.Ports {
		ports = append(ports, cluster.EndpointPort{Name: p.Name, Protocol: p.Protocol, Port: 8000 + uint16(i)})
	}
	last := min(len(s.endpoints), (slice+1)*sliceSize)
	var all []*cluster.Endpoint
	for _, n := range slices.Sorted(slices.Values(s.endpoints[slice*sliceSize : last])) {
		node := "other"
		if n%localEvery == 0 {
			node = tabletest.Node().Name
		}
		all = append(all, &cluster.Endpoint{
			EndpointKey: cluster.EndpointKey{Source: source, Addr: numberedAddr(t.Family(), 12, n)},
			Ports:       ports, Node: node, Ready: true, Serving: true,
		})
	}
	t.SetEndpoints(s.spec.Name, source, all)
}
