package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/nftproxy/nftproxy/nft/walk"
)

// listeners are the queues of nfnetlink_queue to which programs listen.
type listeners map[uint16]bool

// readListeners reads the listeners of the current network namespace. The file
// does not exist without nfnetlink_queue.
func readListeners() (listeners, error) {
	text, err := os.ReadFile("/proc/thread-self/net/netfilter/nfnetlink_queue")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the queues of packets: %w", err)
	}
	found := make(listeners)
	for line := range strings.Lines(string(text)) {
		var number uint16
		if _, err := fmt.Sscan(line, &number); err == nil {
			found[number] = true
		}
	}
	return found, nil
}

// queued is what happens to a packet that a rule sends to a queue.
type queued uint8

const (
	notQueued queued = iota
	decided          // a program decides
	bypassed         // no program listens, so it passes
	unread           // no program listens, so the kernel drops it
)

// of returns what happens to a packet at the end of a path. If a rule has
// several queues, one without a program is enough to lose packets.
func (l listeners) of(end walk.End) queued {
	if end.Action != walk.Queued {
		return notQueued
	}
	queues, ok := end.By.Rule.Queues()
	for i := range queues.Total {
		switch {
		case !ok || l[queues.First+i]:
		case queues.Bypass:
			return bypassed
		default:
			return unread
		}
	}
	return decided
}
