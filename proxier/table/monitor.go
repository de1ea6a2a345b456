package table

import (
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft"
)

// listenTime is how long nameOthers listens. Meanwhile every transaction on the
// host is slower.
const listenTime = 5 * time.Second

// monitor finds the processes that commit to nf_tables.
type monitor struct {
	inner *nft.Monitor // nil if it could not be opened

	mu                sync.Mutex
	listening, closed bool
}

// open opens the monitor. If that fails, nameOthers does nothing.
func (m *monitor) open() {
	inner, err := nft.OpenMonitor()
	if err != nil {
		klog.V(2).InfoS("Programs that change the table cannot be named", "err", err)
		return
	}
	m.inner = inner
}

// close closes the monitor, or makes it close when it has stopped listening:
// the number of a closed socket could already belong to another file.
func (m *monitor) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inner == nil || m.closed {
		return nil
	}
	m.closed = true
	if m.listening {
		return nil
	}
	return m.inner.Close()
}

// begin reports whether the caller may listen. It must call end afterwards.
func (m *monitor) begin() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.inner == nil || m.closed || m.listening {
		return false
	}
	m.listening = true
	return true
}

func (m *monitor) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listening = false
	if m.closed {
		m.inner.Close()
	}
}

// nameOthers listens for a moment, in the background, and logs the other
// processes that commit to nf_tables. ours are the netlink ports of this
// process.
func (m *monitor) nameOthers(ours map[uint32]bool) {
	if !m.begin() {
		return
	}
	go func() {
		defer m.end()
		others, err := m.inner.Listen(listenTime)
		if err != nil {
			klog.ErrorS(err, "Failed to find out which program changes the table")
			return
		}
		for _, p := range others {
			if !ours[p.Port] {
				klog.InfoS("Another process commits to nf_tables", "process", p.Name, "pid", p.PID)
			}
		}
	}()
}
