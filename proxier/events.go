package proxier

import (
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// eventLog logs events and passes them to another recorder.
type eventLog struct{ next cluster.EventRecorder } // next may be nil

// Record implements cluster.EventRecorder.
func (l eventLog) Record(e cluster.Event) {
	table.LogEvent(e)
	if l.next != nil {
		l.next.Record(e)
	}
}
