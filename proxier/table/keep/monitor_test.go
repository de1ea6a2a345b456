package keep

import (
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/tabletest"
)

// The monitor belongs to all Keepers: it is closed with the last one. A closed
// monitor does not listen.
func TestMonitorIsShared(t *testing.T) {
	tabletest.NewNamespace(t)
	var m monitor
	m.open()
	m.open()
	inner := m.inner
	if err := m.close(); err != nil || m.inner == nil {
		t.Fatalf("got error %v, monitor %v; want the monitor of the other Keeper", err, m.inner)
	}
	if err := m.close(); err != nil || m.inner != nil {
		t.Fatalf("got error %v, monitor %v; want none", err, m.inner)
	}
	if _, err := inner.Listen(time.Millisecond); err == nil {
		t.Error("the socket is still open")
	}
	if _, ok, err := m.listen(); ok || err != nil {
		t.Errorf("a closed monitor listens, or fails: %v", err)
	}
}

// While a large transaction is committed, the monitor does not listen.
func TestMonitorIsQuiet(t *testing.T) {
	tabletest.NewNamespace(t)
	var m monitor
	m.open()
	defer m.close()
	m.quiet.Lock() // as commit does
	m.nameOthers(func(uint32) bool { return true }, nil)
	listened := make(chan bool)
	go func() {
		m.listen()
		close(listened)
	}()
	select {
	case <-listened:
		t.Error("the monitor listens during a large transaction")
	case <-time.After(4 * listenStep):
	}
	m.quiet.Unlock()
	<-listened
}
