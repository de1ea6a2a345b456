package main

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// benchServices is the number of Services of BenchmarkCommand. Each has
// tabletest.ManyEndpoints endpoints.
const benchServices = 10_000

// BenchmarkCommand measures the command, from the start of its process to its
// end, without changes and with 50 changes a second.
func BenchmarkCommand(b *testing.B) {
	tabletest.NewNode(b)
	p := benchProxy(b)
	bin := programs(b)
	namespace, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		b.Fatal(err)
	}
	defer namespace.Close()
	for _, load := range []struct {
		name string
		rate int // changes per second
	}{{"idle", 0}, {"50-changes-per-second", 50}} {
		for _, args := range [][]string{{"status"}, {"services", "bench/service-77"}} {
			b.Run(load.name+"/"+args[0], func(b *testing.B) {
				runtime.LockOSThread() // a benchmark runs in a thread of its own
				if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
					b.Fatal(err)
				}
				stop := change(p, load.rate)
				defer stop()
				var times []time.Duration
				for b.Loop() {
					start := time.Now()
					if out, err := exec.Command(filepath.Join(bin, operator.Name),
						args...).CombinedOutput(); err != nil {
						b.Fatalf("%v\n%s", err, out)
					}
					times = append(times, time.Since(start))
				}
				slices.Sort(times)
				b.ReportMetric(float64(times[len(times)/2].Nanoseconds()), "p50-ns/op")
				b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds()), "p99-ns/op")
			})
		}
	}
}

// benchProxy returns a proxy that runs, with a socket.
func benchProxy(b *testing.B) *proxier.Proxier {
	b.Helper()
	rules := tabletest.Rules()
	p, err := proxier.NewDualStackProxier(proxier.Config{
		NodeName: "node1", Rules: ruleset.Config{DetectLocal: rules.DetectLocal},
	})
	if err != nil {
		b.Fatal(err)
	}
	for i := range benchServices {
		svc := tabletest.NumberedService(i)
		p.SetService(&translate.Service{Name: svc.Name, Service: svc})
		p.SetEndpointSlice(benchSlice(i, 0))
	}
	p.OnServiceSynced()
	p.OnEndpointSlicesSynced()
	answers, err := answer.New(answer.Config{Proxy: p, NodeEligible: func() bool { return true }})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(answers.Close)
	server, err := socket.NewServer(answers.Pages())
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	b.Cleanup(stop)
	go p.SyncLoop(ctx)
	go server.Run(ctx)
	<-p.Synced()
	return p
}

// benchSlice returns the endpoints of a Service. They differ by version.
func benchSlice(service, version int) *translate.EndpointSlice {
	name := tabletest.NumberedService(service).Name
	s := &translate.EndpointSlice{
		Name: translate.SliceName{Namespace: name.Namespace, Name: name.Name}, Service: name, Family: nft.IPv4,
	}
	for i := range tabletest.ManyEndpoints {
		e := tabletest.NumberedEndpoint(service, i)
		e.Source = name.Name
		s.Endpoints = append(s.Endpoints, e)
	}
	if version > 0 {
		last := s.Endpoints[tabletest.ManyEndpoints-1]
		last.EndpointKey = cluster.EndpointKey{
			Source: name.Name, Addr: netip.AddrFrom4([4]byte{10, 250, byte(version >> 8), byte(version)}),
		}
	}
	return s
}

// change replaces an endpoint of a Service, this many times a second, until
// stop is called.
func change(p *proxier.Proxier, rate int) (stop func()) {
	if rate == 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for version := 1; ; version++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				p.SetEndpointSlice(benchSlice(version*37%benchServices, version))
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
