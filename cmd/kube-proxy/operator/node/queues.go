package node

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

// of returns what happens to a packet that a rule sends to queues, "" if it
// passes. If a rule has several, one without a program is enough to lose
// packets.
func (l listeners) of(by *walk.Step) Action {
	queues, ok := by.Rule.Queues()
	for i := range queues.Total {
		switch {
		case !ok || l[queues.First+i]:
		case queues.Bypass:
			return ""
		default:
			return Loses
		}
	}
	return Asks
}
