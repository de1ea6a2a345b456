package proxier

import (
	"time"

	"github.com/nftproxy/nftproxy/proxier/table"
)

// observer passes what the tables of a Proxier commit to the parts that depend
// on it: stale flows, health checks, NodePorts on localhost and metrics.
type observer struct{ *Proxier }

// Committed implements table.Observer.
func (o observer) Committed(c *table.Commit) {
	if o.flows != nil {
		o.flows.update(c)
	}
	family := o.familyOf(c.Family)
	family.checks.update(c)
	if family.localhost != nil {
		family.localhost.update(c)
	}
	if family.connections != nil {
		family.connections.update(c)
	}
}

// Synced implements table.Observer.
func (o observer) Synced(r table.SyncResult) {
	family := o.familyOf(r.Family)
	o.metrics.synced(r)
	family.lastSync.Store(&lastSync{r, time.Now()})
	if r.Err == nil {
		o.metrics.programmed(r.Family, family.triggers)
		family.triggers = family.triggers[:0]
	}
}
