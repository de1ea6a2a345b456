package ejector

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/eject"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// blindPorts are the service ports none of whose endpoints answer probes. Any
// goroutine can read them.
type blindPorts struct {
	mu    sync.Mutex
	names []string
}

func (b *blindPorts) set(ports []eject.Port) {
	var names []string
	for _, p := range ports {
		names = append(names, p.Service.WithPort(p.Name))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.names = names
}

// Blind returns the names of the service ports of which no endpoint is ejected,
// because neither a suspect nor other endpoints answered probes of this node.
// Any goroutine can call it.
func (e *Ejector) Blind() []string {
	e.blind.mu.Lock()
	defer e.blind.mu.Unlock()
	return e.blind.names
}

// reportBlind records an event about a service port that is blind.
func (e *Ejector) reportBlind(ctx context.Context, p eject.Port) {
	err := e.query(ctx, p.Family, func(t *table.Table) error {
		if u, ok := t.Usable(nameOf(p)); ok {
			e.config.Events.Record(cluster.NewEvent(u.Service, cluster.ReasonNotEjected, fmt.Sprintf(
				"Endpoints of service port %s do not answer clients, and no other endpoint of it answers probes of "+
					"node %s: the network of the node or a network policy may drop packets. No endpoint is ejected",
				p.Service.WithPort(p.Name), e.config.NodeName)))
		}
		return nil
	})
	if err != nil {
		klog.V(2).InfoS("Failed to report that no endpoint answers probes", "err", err)
	}
}
