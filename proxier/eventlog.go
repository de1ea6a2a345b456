package proxier

import (
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/share"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// The log has at most eventLines lines about events at once, and then
// eventLinesPerSecond. Each namespace has a share of them: 1,000 lines at once
// while it is alone.
const (
	eventLines          = 2000
	eventLinesPerSecond = 20
	// The log has leftOutLines lines about namespaces whose lines are left out
	// at once, and then one a minute.
	leftOutLines          = 20
	leftOutLinesPerSecond = 1.0 / 60
)

// eventLog logs events and passes them to another recorder.
type eventLog struct {
	next cluster.EventRecorder // may be nil

	mu             sync.Mutex
	lines, leftOut *share.Rate
}

func newEventLog(next cluster.EventRecorder) *eventLog {
	return &eventLog{
		next: next, lines: share.NewRate(eventLines, eventLinesPerSecond),
		leftOut: share.NewRate(leftOutLines, leftOutLinesPerSecond),
	}
}

// Record implements cluster.EventRecorder.
func (l *eventLog) Record(e cluster.Event) {
	switch line, leftOut := l.use(e.Namespace, time.Now()); {
	case line:
		table.LogEvent(e)
	case leftOut:
		klog.InfoS("Leaving out warnings about objects of a namespace that has many", "namespace", e.Namespace)
	}
	if l.next != nil {
		l.next.Record(e)
	}
}

// use reports whether an event gets a log line, and if not, whether the log
// gets a line about this.
func (l *eventLog) use(namespace string, now time.Time) (line, leftOut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line = l.lines.Use(namespace, now)
	return line, !line && l.leftOut.Use(namespace, now)
}
