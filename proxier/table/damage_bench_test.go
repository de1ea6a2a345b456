package table_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/notify"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

var damageServices = flag.Int("damage-services", 10_000, "Services of 47 endpoints of BenchmarkDamage")

// BenchmarkDamage measures repairs of a table, and restarts with it, without
// and with a program that listens to nf_tables in another network namespace:
// the time until the table is right, the longest transaction, and the growth of
// the memory of the kernel. It stays in one goroutine, because that has the
// network namespace.
func BenchmarkDamage(b *testing.B) {
	for _, listens := range []bool{false, true} {
		b.Run(fmt.Sprint("listener=", listens), func(b *testing.B) {
			if listens {
				listen(b)
			}
			tabletest.NewNamespace(b)
			m := &damageMeter{engine: newEngine(b)}
			m.limits = keep.DefaultLimits()
			m.limits.FirstPause, m.limits.LastPause = 0, 0 // damage comes within seconds
			m.config.Observer, m.config.Events = nil, nil
			m.restart(b)
			const in = " ip kube-proxy "
			for _, d := range []struct{ name, commands string }{
				{"chain", "flush chain" + in + "services"},
				{"chain10", "flush chain" + in + "services"}, // again and again
				{"base-chain", "flush chain" + in + "nat-output\ndelete chain" + in + "nat-output"},
				{"classes", "flush map" + in + "service-classes"},
				{"targets", "flush map" + in + "service-targets"},
				{"row", "delete element" + in + "service-targets { 10.96.0.10 . tcp . 80 . 0:2 }"},
			} {
				times := 1
				if d.name == "chain10" {
					times = 10
				}
				m.measure(b, d.name, times, func() { tabletest.LoadNFT(b, d.commands) }, func() { m.repair(b) })
			}
			m.measure(b, "restart", 1, func() {}, func() { m.restart(b) })
			m.port++
			m.measure(b, "restart-all-differ", 1, func() {}, func() { m.restart(b) })
		})
	}
}

// listen lets a program listen to nf_tables in a network namespace of its own.
func listen(b *testing.B) {
	b.Helper()
	tabletest.NewNamespace(b)
	monitor, err := notify.OpenMonitor()
	must.NoError(b, err)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			default:
				_, _ = monitor.Listen(100 * time.Millisecond)
			}
		}
	}()
	b.Cleanup(func() {
		close(end)
		<-ended
		must.NoError(b, monitor.Close())
	})
}

// damageMeter measures what a process does about its table.
type damageMeter struct {
	*engine
	port    uint16 // of all endpoints, above 8080
	longest time.Duration
	began   time.Time
}

// restart starts a process with all Services, and returns after its first sync.
func (m *damageMeter) restart(b *testing.B) {
	b.Helper()
	must.NoError(b, m.start())
	m.kernels[len(m.kernels)-1].OnCommit = func(_ *nft.Batch, commit func() error) error {
		began := time.Now()
		err := commit()
		m.longest = max(m.longest, time.Since(began))
		return err
	}
	of := m.tables[0]
	for i := range *damageServices {
		svc := tabletest.NumberedService(i)
		of.SetService(svc)
		endpoints := numberedEndpoints(i, 47)
		for _, e := range endpoints {
			e.Ports[0].Port = 8080 + m.port
		}
		of.SetEndpoints(svc.Name, "slice", endpoints)
	}
	m.began = time.Now()
	must.NoError(b, finish(of))
}

// repair checks the table until it is right.
func (m *damageMeter) repair(b *testing.B) {
	b.Helper()
	of := m.tables[0]
	m.began = time.Now()
	for before := repairs(of); repairs(of) == before || of.IsRepairing(); {
		must.NoError(b, of.Check())
	}
}

func repairs(of *table.Table) (n int) {
	for _, count := range of.Stats().Repairs {
		n += count
	}
	return n
}

// measure reports what a process does after damage: the longest of some times.
func (m *damageMeter) measure(b *testing.B, name string, times int, damage, act func()) {
	b.Helper()
	var took time.Duration
	m.longest = 0
	time.Sleep(time.Second) // until the kernel has freed memory
	growth := watchSlabs()
	for range times {
		damage()
		act()
		took = max(took, time.Since(m.began))
	}
	b.ReportMetric(took.Seconds()*1e3, name+"-ms")
	b.ReportMetric(m.longest.Seconds()*1e3, name+"-commit-ms")
	b.ReportMetric(float64(growth()), name+"-MB")
}

// watchSlabs watches the slab memory of the kernel until the function that it
// returns is called, which returns the growth in MB.
func watchSlabs() (growth func() int) {
	var most atomic.Int64
	before, done, ended := slabs(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			most.Store(max(most.Load(), int64(slabs())))
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() int {
		close(done)
		<-ended
		return max(0, int(most.Load())-before) >> 10
	}
}

// slabs returns the slab memory of the kernel in KB.
func slabs() (kb int) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if n, _ := fmt.Sscanf(line, "Slab: %d kB", &kb); n == 1 {
			return kb
		}
	}
	return 0
}
