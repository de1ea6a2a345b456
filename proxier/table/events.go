package table

import (
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// record passes an event to the recorder. Without a recorder, it is logged.
func (t *Table) record(e cluster.Event) {
	if t.config.Events == nil {
		LogEvent(e)
		return
	}
	t.config.Events.Record(e)
}

// LogEvent logs an event.
func LogEvent(e cluster.Event) {
	klog.InfoS("Warning", "kind", e.Kind, "object", klog.KRef(e.Namespace, e.Name), "reason", e.Reason, "note", e.Note)
}
