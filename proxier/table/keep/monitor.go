package keep

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft/notify"
)

// listenTime is how long nameOthers listens. Meanwhile every transaction on the
// host is slower.
const listenTime = 5 * time.Second

// monitor finds the processes that commit to nf_tables.
type monitor struct {
	inner *notify.Monitor // nil if it could not be opened, or is closed
	busy  sync.Mutex      // locked while inner is in use
}

// open opens the monitor. If that fails, nameOthers does nothing.
func (m *monitor) open() {
	inner, err := notify.OpenMonitor()
	if err != nil {
		klog.V(2).InfoS("Programs that change the table cannot be named", "err", err)
		return
	}
	m.inner = inner
}

// close closes the monitor when it has stopped listening: the number of a
// closed socket could already belong to another file.
func (m *monitor) close() error {
	inner := m.inner
	if m.inner = nil; inner == nil {
		return nil
	}
	if m.busy.TryLock() {
		return inner.Close()
	}
	go func() {
		m.busy.Lock()
		inner.Close()
	}()
	return nil
}

// nameOthers listens for a moment, in the background, logs the other processes
// that commit to nf_tables, and passes them to a function. ours are the netlink
// ports of this process, as keys.
func (m *monitor) nameOthers(ours *sync.Map, found func(processes []string)) {
	inner := m.inner
	if inner == nil || !m.busy.TryLock() {
		return
	}
	go func() {
		defer m.busy.Unlock()
		others, err := inner.Listen(listenTime)
		if err != nil {
			klog.ErrorS(err, "Failed to find out which program changes the table")
			return
		}
		var processes []string
		for _, p := range others {
			if _, own := ours.Load(p.Port); !own {
				processes = append(processes, fmt.Sprintf("%s (process %d)", p.Name, p.PID))
				klog.InfoS("Another process commits to nf_tables", "process", p.Name, "pid", p.PID)
			}
		}
		if len(processes) > 0 {
			found(processes)
		}
	}()
}
