package table

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
	if !m.begin() || m.begin() {
		t.Fatal("want one listener at a time")
	}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.inner.Listen(time.Millisecond); err != nil {
		t.Errorf("the socket was closed while it was in use: %v", err)
	}
	m.end()
	if _, err := m.inner.Listen(time.Millisecond); err == nil {
		t.Error("the socket is still open")
	}
	if m.begin() {
		t.Error("a closed monitor listens")
	}
}
