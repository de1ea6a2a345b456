package proxier

import (
	"fmt"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// A namespace with endless warnings leaves log lines to others, and the log
// names this namespace. The next recorder gets all events.
func TestEventLog(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	l := newEventLog(nil)
	var lines, leftOut int
	for range 60_000 {
		now = now.Add(time.Millisecond)
		line, out := l.use("tenant", now)
		if line {
			lines++
		}
		if out {
			leftOut++
		}
	}
	if lines < 1000 || lines > 2200 || leftOut < 1 || leftOut > 20 {
		t.Errorf("got %d lines and %d about others in a minute, want 1000 to 2200 and 1 to 20", lines, leftOut)
	}
	for i := range 100 {
		if line, _ := l.use("other", now); !line {
			t.Fatalf("got no line for warning %d of another namespace", i)
		}
	}
	var next tabletest.Events
	l = newEventLog(&next)
	for i := range 2 * eventLines {
		l.Record(cluster.Event{Kind: "Service", Namespace: "tenant", Name: fmt.Sprint(i)})
	}
	if got := len(next); got != 2*eventLines {
		t.Errorf("the next recorder got %d events, want %d", got, 2*eventLines)
	}
}
