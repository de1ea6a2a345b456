package keep

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/nft/notify"
)

const (
	// listenTime is how long nameOthers listens, listenStep how long without a
	// break. While any program listens, the kernel builds a message of several
	// KB for each element of a transaction, and keeps all of them until the
	// transaction ends.
	listenTime = 5 * time.Second
	listenStep = 50 * time.Millisecond
)

// monitor finds the processes that commit to nf_tables. The Keepers of a
// process share it.
type monitor struct {
	// quiet is locked while the monitor listens, and while a Keeper commits a
	// large transaction.
	quiet sync.Mutex
	users int             // Keepers that are open
	inner *notify.Monitor // nil if it could not be opened, or is closed
	busy  atomic.Bool     // nameOthers is at work
}

// open opens the monitor for a Keeper. If that fails, nameOthers does nothing.
func (m *monitor) open() {
	m.quiet.Lock()
	defer m.quiet.Unlock()
	if m.users++; m.inner != nil {
		return
	}
	inner, err := notify.OpenMonitor()
	if err != nil {
		klog.V(2).InfoS("Programs that change the table cannot be named", "err", err)
		return
	}
	m.inner = inner
}

// close closes the monitor when the last Keeper is closed.
func (m *monitor) close() error {
	m.quiet.Lock()
	defer m.quiet.Unlock()
	inner := m.inner
	if m.users--; m.users > 0 || inner == nil {
		return nil
	}
	m.inner = nil
	return inner.Close()
}

// nameOthers listens for a moment, in the background, logs the processes that
// commit to nf_tables and are not ours, and passes them to a function.
func (m *monitor) nameOthers(ours func(port uint32) bool, found func(processes []string)) {
	if !m.busy.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer m.busy.Store(false)
		var others []notify.Committer
		for end := time.Now().Add(listenTime); time.Now().Before(end); {
			now, ok, err := m.listen()
			if err != nil {
				klog.ErrorS(err, "Failed to find out which program changes the table")
			}
			if err != nil || !ok {
				return
			}
			others = append(others, now...)
		}
		var processes []string
		for _, p := range others {
			name := fmt.Sprintf("%s (process %d)", p.Name, p.PID)
			if !ours(p.Port) && !slices.Contains(processes, name) {
				processes = append(processes, name)
				klog.InfoS("Another process commits to nf_tables", "process", p.Name, "pid", p.PID)
			}
		}
		if len(processes) > 0 {
			found(processes)
		}
	}()
}

// listen returns the processes that commit during listenStep. ok is false if
// the monitor is closed.
func (m *monitor) listen() (found []notify.Committer, ok bool, err error) {
	m.quiet.Lock()
	defer m.quiet.Unlock()
	if m.inner == nil {
		return nil, false, nil
	}
	found, err = m.inner.Listen(listenStep)
	return found, true, err
}
