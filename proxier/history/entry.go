package history

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Kind is the kind of an entry.
type Kind string

// The kinds of entries.
const (
	// Change means that a service port was written: it was added or removed, or
	// its frontends, endpoints or settings changed.
	Change Kind = "change"
	// Refusal means that a service port cannot be updated.
	Refusal Kind = "refusal"
	// Write means that the whole table was written.
	Write Kind = "write"
	// Repair means that single rows or chains of the table were repaired.
	Repair Kind = "repair"
	// Failure means that a sync failed.
	Failure Kind = "failure"
)

// Cause is why something was written: one of the following, or the cause of a
// rewrite, as in metrics (keep.RewriteCause).
type Cause string

// The causes of entries.
const (
	ByChange Cause = "change" // of an object, or of this node
	ByDamage Cause = "damage" // another program changed the table
	ByResync Cause = "resync" // the periodic sync, which tries again what was refused
	// ByEjection means that endpoints were ejected because they answer nothing
	// or fail health checks, or are used again.
	ByEjection Cause = "ejection"
)

// Entry is what happened to a service port or, without a Service, to a table.
type Entry struct {
	// Time is when it happened. In a burst, it is the time of the first of
	// Count changes, and Last the time of the last one.
	Time  time.Time `json:"time"`
	Last  time.Time `json:"last,omitzero"`
	Count int       `json:"count"`

	Family nft.Family `json:"family"`
	Kind   Kind       `json:"kind"`
	Cause  Cause      `json:"cause,omitempty"`
	// Seconds is the duration of the sync, in a burst of the longest one.
	Seconds float64 `json:"seconds,omitempty"`

	// Service is zero for an entry about a table. Port and Protocol are those
	// of the service port.
	Service  cluster.ServiceName `json:"service,omitzero"`
	Port     string              `json:"port,omitempty"`
	Protocol cluster.Protocol    `json:"protocol,omitzero"`

	// Added and Removed report whether the service port was.
	Added   bool `json:"added,omitempty"`
	Removed bool `json:"removed,omitempty"`
	// Endpoints are the endpoints that came and went, Usable is how many the
	// service port has now.
	Endpoints Difference[netip.AddrPort] `json:"endpoints,omitzero"`
	Usable    int                        `json:"usableEndpoints,omitempty"`
	Frontends Difference[string]         `json:"frontends,omitzero"`
	// Ejected are the endpoints that were ejected, and those that are used
	// again. They are not among Endpoints.
	Ejected Difference[netip.AddrPort] `json:"ejected,omitzero"`
	// Settings are what else changed, such as "source ranges".
	Settings []string `json:"settings,omitempty"`

	// ServicePorts is the number of service ports that a write of the whole
	// table wrote, Changed of those that it changed.
	ServicePorts int `json:"servicePorts,omitempty"`
	Changed      int `json:"changedServicePorts,omitempty"`
	// Reason is why a service port was refused, why a table was written or
	// repaired, or the error of a sync that failed.
	Reason string `json:"reason,omitempty"`
	// Programs are the processes that kept changing the table.
	Programs []string `json:"programs,omitempty"`
}

// Difference is what came and went, each of it once. An endpoint that came and
// went in a burst is in both lists.
type Difference[T comparable] struct {
	Added   []T `json:"added,omitempty"`
	Removed []T `json:"removed,omitempty"`
	// More is how often others came or went, which are not listed.
	More int `json:"more,omitempty"`
}

// maxListed is the number of things that a list of an entry has. With
// maxText, it keeps an entry below maxBytes / maxEntries.
const maxListed = 12

// maxText is the number of bytes of a text of an entry.
const maxText = 300

// IsZero reports whether nothing came or went.
func (d Difference[T]) IsZero() bool { return len(d.Added)+len(d.Removed)+d.More == 0 }

// prepare limits the size of an entry.
func (e *Entry) prepare() {
	e.Count = max(e.Count, 1)
	if len(e.Reason) > maxText {
		e.Reason = strings.Clone(e.Reason[:maxText]) // without the memory of the rest
	}
	e.Endpoints.cut()
	e.Frontends.cut()
	e.Ejected.cut()
}

// cut limits the lists.
func (d *Difference[T]) cut() {
	if max(len(d.Added), len(d.Removed)) <= maxListed {
		return
	}
	for _, list := range []*[]T{&d.Added, &d.Removed} {
		if n := len(*list) - maxListed; n > 0 {
			*list = slices.Clone((*list)[:maxListed])
			d.More += n
		}
	}
}

// merge adds another difference.
func (d *Difference[T]) merge(o *Difference[T]) {
	d.More += o.More + union(&d.Added, o.Added) + union(&d.Removed, o.Removed)
}

// union appends the values that a list does not have, and returns the number of
// those that have no room. It does not modify the values of the list, which
// others may read.
func union[T comparable](list *[]T, more []T) (rest int) {
	for _, v := range more {
		switch {
		case slices.Contains(*list, v):
		case len(*list) >= maxListed:
			rest++
		default:
			*list = append(*list, v)
		}
	}
	return rest
}

// merge adds another change of the same burst.
func (e *Entry) merge(o *Entry) {
	e.Count += o.Count
	e.Last = o.Time
	e.Seconds = max(e.Seconds, o.Seconds)
	e.Added, e.Removed = e.Added || o.Added, e.Removed || o.Removed
	e.Endpoints.merge(&o.Endpoints)
	e.Frontends.merge(&o.Frontends)
	e.Ejected.merge(&o.Ejected)
	union(&e.Settings, o.Settings)
	e.Usable, e.ServicePorts, e.Changed = o.Usable, o.ServicePorts, e.Changed+o.Changed
	e.Reason = o.Reason
}

// compare orders entries by time.
func compare(a, b Entry) int {
	return cmp.Or(a.Time.Compare(b.Time), a.Service.Compare(b.Service), strings.Compare(a.Port, b.Port),
		cmp.Compare(a.Protocol, b.Protocol), strings.Compare(a.Family.Name(), b.Family.Name()),
		strings.Compare(string(a.Kind), string(b.Kind)))
}
