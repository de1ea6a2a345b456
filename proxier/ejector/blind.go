package ejector

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/eject"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// maxBlind is the number of service ports that Blind returns at most.
const maxBlind = 50

// blindPorts are the service ports none of whose endpoints answer probes. Any
// goroutine can read them.
type blindPorts struct {
	mu    sync.Mutex
	names []string
}

// set sets the service ports, sorted.
func (b *blindPorts) set(ports []eject.Port) {
	var names []string
	for _, p := range ports {
		names = append(names, p.String())
	}
	names = slices.Compact(names) // those of both families
	b.mu.Lock()
	defer b.mu.Unlock()
	b.names = names[:min(len(names), maxBlind)]
}

// Blind returns the first names of the service ports of which no endpoint is
// ejected, because neither a suspect nor other endpoints answered probes of
// this node. Any goroutine can call it.
func (e *Ejector) Blind() []string {
	e.blind.mu.Lock()
	defer e.blind.mu.Unlock()
	return e.blind.names
}

// reportBlind records an event about a service port that is blind.
func (e *Ejector) reportBlind(ctx context.Context, p eject.Port) error {
	return e.query(ctx, p.Family, func(t *table.Table) error {
		if u, ok := t.Usable(p.PortName); ok {
			e.config.Events.Record(cluster.NewEvent(u.Service, cluster.ReasonNotEjected, fmt.Sprintf(
				"Endpoints of service port %s do not answer clients on node %s: the network of the node or a network "+
					"policy may drop packets. No endpoint is ejected",
				p, e.config.NodeName)))
		}
		return nil
	})
}
