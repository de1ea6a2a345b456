package follow

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/history"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// maxChanges is the number of service ports of a sync that are recorded one by
// one, so that a change of all Services does not displace everything else.
const maxChanges = 200

// changes records in the history what happens to the table of a family. It
// compares the plans of a commit at once, and records them at the end of the
// sync, with its cause and duration.
type changes struct {
	idle
	log     *history.Log
	entries []history.Entry // of the present sync
	ports   int             // that the last write of the whole table wrote
	changed int             // service ports that the present sync changed
	began   bool            // a table was written since the start

	mu   sync.Mutex
	last []history.Entry // of the last sync that has any
}

// observe records an event that is no commit.
func (h *changes) observe(of nft.Family, e table.Event) {
	switch e := e.(type) {
	case table.Refusal: // with the cause and duration of the sync, which follow
		h.entries = append(h.entries, history.Entry{
			Kind: history.Refusal, Service: e.Service, Port: e.Port.Name, Protocol: e.Port.Protocol,
			Reason: e.Why.Error(),
		})
	case *keep.Damage:
		h.log.Record(&history.Entry{
			Time: time.Now(), Family: of, Kind: history.Repair, Cause: history.ByDamage, Reason: e.Error(),
		})
	case keep.SyncResult:
		h.synced(e)
	}
}

// committed compares the plans of a commit.
func (h *changes) committed(c *table.Commit) {
	if c.Whole {
		h.ports = 0
	}
	for _, change := range c.Changes {
		if c.Whole && change.After != nil {
			h.ports++
		}
		if c.Whole && !h.began {
			continue
		}
		h.entries = append(h.entries, history.Entry{Kind: history.Change})
		last := len(h.entries) - 1
		differs := compare(change, &h.entries[last])
		if differs {
			h.changed++
		}
		if !differs || last >= maxChanges {
			h.entries = h.entries[:last]
		}
	}
	h.began = h.began || c.Whole
}

// synced records the sync that ended.
func (h *changes) synced(r keep.SyncResult) {
	switch {
	case r.Err != nil:
		h.add(history.Entry{Kind: history.Failure, Reason: r.Err.Error()})
	case r.Full:
		h.add(history.Entry{Kind: history.Write, Reason: r.Why, ServicePorts: h.ports, Changed: h.changed})
	case h.changed > maxChanges:
		h.add(history.Entry{Kind: history.Change, Changed: h.changed})
	}
	if len(h.entries) == 0 {
		return
	}
	for i := range h.entries {
		e := &h.entries[i]
		e.Time, e.Family, e.Seconds = r.Ended, r.Family, r.Duration.Seconds()
		if e.Cause == "" {
			e.Cause = causeOf(e.Kind, r)
		}
		h.log.Record(e)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.entries, h.changed = h.entries, h.last[:0], 0
}

// lastEntries returns the first entries of the last sync that has any, and the
// number of all. Any goroutine can call it.
func (h *changes) lastEntries(limit int) (first []history.Entry, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.last[:min(len(h.last), limit)]), len(h.last)
}

// add adds an entry before the others of the sync.
func (h *changes) add(e history.Entry) { h.entries = slices.Insert(h.entries, 0, e) }

// causeOf returns the cause of an entry about a sync. The writing of a whole
// table changes no service port by itself.
func causeOf(kind history.Kind, r keep.SyncResult) history.Cause {
	switch {
	case r.Full && kind != history.Change:
		return history.Cause(r.Rewrite)
	case r.Cause == keep.CausePeriodic:
		return history.ByResync
	}
	return history.ByChange
}

// compare enters into e what changed. It returns false if that is nothing that
// people look for.
func compare(change table.PortChange, e *history.Entry) bool {
	before, after := change.Before, change.After
	named := cmp.Or(after, before)
	if named == nil {
		return false
	}
	e.Added, e.Removed = before == nil, after == nil
	e.Service, e.Port, e.Protocol = named.Service.Name, named.Port.Name, named.Port.Protocol
	if e.Added {
		before = &nothing
	}
	if e.Removed {
		after = &nothing
	}
	e.Usable = len(after.Cluster)
	e.Endpoints.Removed, e.Endpoints.Added = differences(before.Cluster, after.Cluster, endpointOf)
	e.Frontends.Removed, e.Frontends.Added = frontendTexts(differences(before.Frontends, after.Frontends, frontendOf))
	if before.Ejected != nil || after.Ejected != nil {
		separateEjected(before, after, e)
	}
	if !e.Added && !e.Removed {
		e.Settings = settings(before, after)
		if e.Endpoints.IsZero() && !slices.EqualFunc(before.Local, after.Local, sameEndpoint) {
			e.Settings = append(e.Settings, "endpoints on this node")
		}
	}
	return e.Added || e.Removed || !e.Endpoints.IsZero() || !e.Frontends.IsZero() || !e.Ejected.IsZero() ||
		e.Settings != nil
}

// separateEjected separates the endpoints that were ejected, or are used again,
// from those that came and went.
func separateEjected(before, after *ruleset.Plan, e *history.Entry) {
	ended, ejected := differences(before.Ejected.All(), after.Ejected.All(), ejectionOf)
	for _, endpoint := range ejected {
		e.Endpoints.Removed = without(e.Endpoints.Removed, endpoint)
	}
	e.Ejected.Added = ejected
	for _, endpoint := range ended {
		if slices.Contains(e.Endpoints.Added, endpoint) {
			e.Endpoints.Added = without(e.Endpoints.Added, endpoint)
			e.Ejected.Removed = append(e.Ejected.Removed, endpoint)
		} else { // the API removed it
			e.Endpoints.Removed = append(e.Endpoints.Removed, endpoint)
		}
	}
	if e.Endpoints.IsZero() && e.Frontends.IsZero() && !e.Ejected.IsZero() {
		e.Cause = history.ByEjection
	}
	for _, ejection := range after.Ejected.All() {
		if slices.Contains(ejected, ejection.Endpoint) {
			e.Reason = ejection.Why()
			break
		}
	}
}

func without(all []netip.AddrPort, one netip.AddrPort) []netip.AddrPort {
	return slices.DeleteFunc(all, func(a netip.AddrPort) bool { return a == one })
}

func ejectionOf(e *cluster.Ejection) netip.AddrPort { return e.Endpoint }

// nothing stands for no plan.
var nothing ruleset.Plan

func sameEndpoint(a, b ruleset.Target) bool { return a.AddrPort() == b.AddrPort() }

func endpointOf(t *ruleset.Target) netip.AddrPort { return t.AddrPort() }

func frontendOf(f *ruleset.ServedFrontend) ruleset.Frontend { return f.Frontend }

// frontendTexts returns the frontends as texts.
func frontendTexts(removed, added []ruleset.Frontend) (removedTexts, addedTexts []string) {
	texts := func(frontends []ruleset.Frontend) (texts []string) {
		for _, f := range frontends {
			texts = append(texts, f.String())
		}
		return texts
	}
	return texts(removed), texts(added)
}

// differences returns the keys that only one of two lists has. Most are at the
// same place in both.
func differences[T any, K comparable](before, after []T, key func(*T) K) (removed, added []K) {
	for i := range max(len(before), len(after)) {
		var a, b K
		if i < len(before) {
			a = key(&before[i])
		}
		if i < len(after) {
			b = key(&after[i])
		}
		if a == b {
			continue
		}
		if i < len(before) {
			removed = append(removed, a)
		}
		if i < len(after) {
			added = append(added, b)
		}
	}
	if len(removed) == 0 || len(added) == 0 || len(removed) == 1 && len(added) == 1 {
		return removed, added
	}
	both := make(map[K]bool, len(removed))
	for _, k := range removed {
		both[k] = false
	}
	for _, k := range added {
		if _, ok := both[k]; ok {
			both[k] = true
		}
	}
	moved := func(k K) bool { return both[k] }
	return slices.DeleteFunc(removed, moved), slices.DeleteFunc(added, moved)
}

// settings returns what else differs between two plans of a service port.
func settings(before, after *ruleset.Plan) (changed []string) {
	add := func(differs bool, what string) {
		if differs {
			changed = append(changed, what)
		}
	}
	add(weighted(before, after), "weights")
	if a, b := before.Service, after.Service; a != b {
		add(a.InternalPolicy != b.InternalPolicy || a.ExternalPolicy != b.ExternalPolicy, "traffic policy")
		add(a.AffinityTimeout != b.AffinityTimeout, "session affinity")
		add(a.Balance != b.Balance || before.Slots != after.Slots, "balancing")
		add(before.Guarded != after.Guarded || !slices.Equal(before.Sources, after.Sources), "source ranges")
		add(a.HealthCheckNodePort != b.HealthCheckNodePort, "health check NodePort")
		add(!a.HealthCheck.Equal(b.HealthCheck), "health check")
	}
	return changed
}

// weighted reports whether an endpoint that stays at its place has another
// weight.
func weighted(before, after *ruleset.Plan) bool {
	for i := range min(len(before.Cluster), len(after.Cluster)) {
		if a, b := &before.Cluster[i], &after.Cluster[i]; a.Weight != b.Weight && a.AddrPort() == b.AddrPort() {
			return true
		}
	}
	return false
}
