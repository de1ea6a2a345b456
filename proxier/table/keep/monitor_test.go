package keep

import (
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// A monitor that is closed while it listens closes its socket afterwards.
func TestCloseWhileListening(t *testing.T) {
	tabletest.NewNamespace(t)
	var m monitor
	m.open()
	inner := m.inner
	m.busy.Lock() // as while it listens
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := inner.Listen(time.Millisecond); err != nil {
		t.Errorf("the socket was closed while it was in use: %v", err)
	}
	m.busy.Unlock()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := inner.Listen(time.Millisecond); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the socket is still open")
		}
	}
	m.nameOthers(nil, nil) // a closed monitor does not listen
	if m.inner != nil || m.busy.TryLock() {
		t.Error("a closed monitor listens")
	}
}
