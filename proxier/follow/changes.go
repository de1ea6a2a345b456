package follow

import (
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/nft"
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
		e, ok := difference(change)
		if !ok {
			continue
		}
		if h.changed++; len(h.entries) < maxChanges {
			h.entries = append(h.entries, e)
		}
	}
	h.began = h.began || c.Whole
}

// refused records a refusal, with the cause and duration of the sync.
func (h *changes) refused(r table.Refusal) {
	h.entries = append(h.entries, history.Entry{
		Kind: history.Refusal, Service: r.Service, Port: r.Port.Name, Protocol: r.Port.Protocol, Reason: r.Why.Error(),
	})
}

// synced records the sync that ended. It returns its entries, which are valid
// until the next commit.
func (h *changes) synced(r keep.SyncResult) []history.Entry {
	cause := causeOf(r)
	switch {
	case r.Err != nil:
		h.add(history.Entry{Kind: history.Failure, Reason: r.Err.Error()})
	case r.Full:
		h.add(history.Entry{Kind: history.Write, Reason: r.Why, ServicePorts: h.ports, Changed: h.changed})
	case h.changed > maxChanges:
		h.add(history.Entry{Kind: history.Change, Changed: h.changed})
	}
	now := time.Now()
	for i := range h.entries {
		e := &h.entries[i]
		e.Time, e.Family, e.Cause, e.Seconds = now, r.Family, cause, r.Duration.Seconds()
		h.log.Record(*e)
	}
	entries := h.entries
	h.entries, h.changed = h.entries[:0], 0
	return entries
}

// add adds an entry before the others of the sync.
func (h *changes) add(e history.Entry) { h.entries = slices.Insert(h.entries, 0, e) }

// causeOf returns the cause of a sync.
func causeOf(r keep.SyncResult) history.Cause {
	switch {
	case !r.Full && r.Cause == keep.CausePeriodic:
		return history.ByResync
	case !r.Full:
		return history.ByChange
	}
	return map[keep.RewriteCause]history.Cause{
		keep.RewriteStart: history.ByRestart, keep.RewriteNode: history.ByNode, keep.RewriteFailure: history.ByFailure,
		keep.RewriteDamage: history.ByRepair, keep.RewriteUnused: history.ByUnused,
	}[r.Rewrite]
}

// repaired records a repair of rows.
func (h *changes) repaired(f nft.Family, d *keep.Damage) {
	h.log.Record(history.Entry{
		Time: time.Now(), Family: f, Kind: history.Repair, Cause: history.ByRepair, Reason: d.Error(),
	})
}

// difference returns the entry of a change. ok is false if the change is none
// that people look for.
func difference(change table.PortChange) (e history.Entry, ok bool) {
	before, after := change.Before, change.After
	if before == nil && after == nil {
		return e, false
	}
	e = history.Entry{Kind: history.Change, Added: before == nil, Removed: after == nil}
	none := new(ruleset.Plan)
	if before == nil {
		before = none
	}
	if after == nil {
		after = none
	}
	named := after
	if after == none {
		named = before
	}
	e.Service, e.Port, e.Protocol = named.Service.Name, named.Port.Name, named.Port.Protocol
	e.Usable = len(after.Cluster)
	e.Endpoints.Removed, e.Endpoints.Added = compare(before.Cluster, after.Cluster, ruleset.Target.AddrPort)
	e.Frontends.Removed, e.Frontends.Added = frontendTexts(compare(before.Frontends, after.Frontends, frontendOf))
	if before != none && after != none {
		e.Settings = settings(before, after)
		if e.Endpoints.IsZero() && !slices.EqualFunc(before.Local, after.Local, sameEndpoint) {
			e.Settings = append(e.Settings, "endpoints on this node")
		}
	}
	ok = e.Added || e.Removed || !e.Endpoints.IsZero() || !e.Frontends.IsZero() || e.Settings != nil
	return e, ok
}

func sameEndpoint(a, b ruleset.Target) bool { return a.AddrPort() == b.AddrPort() }

func frontendOf(f ruleset.ServedFrontend) ruleset.Frontend { return f.Frontend }

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

// compare returns the keys that only one of two lists has. Most are at the same
// place in both.
func compare[T any, K comparable](before, after []T, key func(T) K) (removed, added []K) {
	for i := range max(len(before), len(after)) {
		if i < len(before) && i < len(after) && key(before[i]) == key(after[i]) {
			continue
		}
		if i < len(before) {
			removed = append(removed, key(before[i]))
		}
		if i < len(after) {
			added = append(added, key(after[i]))
		}
	}
	if len(removed) == 0 || len(added) == 0 {
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
