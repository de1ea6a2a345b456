package proxier

import (
	"os"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// Status describes the Proxier. It does not wait for a sync: the numbers of the
// tables are those of the last publish. Any goroutine can call it.
func (p *Proxier) Status() socket.Status {
	listed, invalid := p.tracker.state()
	s := socket.Status{
		Mode: "nftables", Node: p.config.NodeName, PID: os.Getpid(), Time: time.Now(), Started: p.tracker.started,
		Listed: listed, InvalidObjects: invalid,
		Families: make([]socket.FamilyStatus, len(p.families)),
	}
	for i, family := range p.families {
		f, h := &s.Families[i], family.health.state()
		f.Family, f.Healthy, f.Synced = family.name(), h.Healthy, h.LastUpdated
		f.WaitingSince, f.LastSync = family.health.waitingSince(), family.lastSync.Load().status()
		addStats(f, family.stats.Load())
	}
	return s
}

// status returns the sync for a Status, nil if there was none.
func (l *lastSync) status() *socket.Sync {
	if l == nil {
		return nil
	}
	s := &socket.Sync{Ended: l.ended, Seconds: l.Duration.Seconds(), Cause: l.Cause, Whole: l.Full}
	if l.Err != nil {
		s.Error = l.Err.Error()
	}
	return s
}

// addStats adds the numbers of a table.
func addStats(f *socket.FamilyStatus, s *table.Stats) {
	f.Services, f.ServicePorts, f.Endpoints = s.Services, s.ServicePorts, s.Endpoints
	f.Rows, f.Rewrites = s.Rows, s.Rewrites
	f.Repairs = make(map[string]int, len(s.Repairs))
	for kind, n := range s.Repairs {
		f.Repairs[string(kind)] = n
	}
	f.Refused, f.Contested, f.Reduced = s.Refused, s.Contested, s.Reduced
	for _, r := range s.ReducedServices {
		f.Reductions = append(f.Reductions, socket.Reduction{Namespace: r.Namespace, Name: r.Name, How: r.How})
	}
	for _, r := range s.RefusedPorts {
		f.Refusals = append(f.Refusals, socket.Refusal{ServicePort: r.Name, Reason: r.Reason})
	}
	for _, w := range s.WaitingPorts {
		f.Conflicts = append(f.Conflicts, socket.Conflict{
			ServicePort: w.Name, Frontend: w.Frontend.String(), Owner: w.Owner,
		})
	}
}
