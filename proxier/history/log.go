// Package history keeps in memory what happened to the service ports and the
// tables of this node: changes that were committed, refusals, ejections, writes
// of whole tables, repairs, failures. It does not find out what happened.
package history

import (
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/share"
)

// Limits of a Log.
const (
	// maxEntries is the number of entries. When there are more, the oldest of
	// the namespace goes that has most.
	maxEntries = 1000
	// maxBytes is the size of all entries.
	maxBytes = 4 << 20
	// burst is the time in which changes of one service port become one entry.
	burst = time.Minute
)

// Log keeps the last entries. Any goroutine can use it.
type Log struct {
	mu     sync.Mutex
	recent *share.Recent[*Entry]
	last   map[key]*Entry
}

// key identifies entries that a burst joins.
type key struct {
	family   nft.Family
	kind     Kind
	cause    Cause
	service  cluster.ServiceName
	port     string
	protocol cluster.Protocol
}

func keyOf(e *Entry) key { return key{e.Family, e.Kind, e.Cause, e.Service, e.Port, e.Protocol} }

// New returns an empty Log.
func New() *Log {
	return &Log{recent: share.NewRecent[*Entry](maxEntries), last: make(map[key]*Entry)}
}

// Record adds an entry. If the last entry about the service port is of the same
// kind and cause and began less than a minute ago, they become one. The lists
// of the entry must not be modified after that.
func (l *Log) Record(e *Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.prepare()
	key := keyOf(e)
	if last := l.last[key]; last != nil && e.Time.Sub(last.Time) < burst {
		last.merge(e)
		return
	}
	kept := *e
	l.last[key] = &kept
	if gone, ok := l.recent.Add(e.Service.Namespace, &kept); ok && l.last[keyOf(gone)] == gone {
		delete(l.last, keyOf(gone))
	}
}

// Blame adds the processes that keep changing the table of a family to its last
// repair.
func (l *Log) Blame(f nft.Family, programs ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var last *Entry
	for e := range l.recent.All() {
		if e.Family == f && e.Cause == ByDamage && e.Service.Name == "" && (last == nil || e.Time.After(last.Time)) {
			last = e
		}
	}
	if last != nil {
		union(&last.Programs, programs)
	}
}

// Query selects entries. Empty fields select all.
type Query struct {
	cluster.ServiceName
	// Since selects the entries of this last period.
	Since time.Duration
}

// Entries returns the entries that a query selects at a time, sorted by their
// times. A query about Services leaves out the entries about tables.
func (l *Log) Entries(q Query, now time.Time) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []Entry
	for e := range l.recent.All() {
		if q.selects(e, now) {
			found = append(found, *e)
		}
	}
	slices.SortStableFunc(found, compare)
	return found
}

func (q *Query) selects(e *Entry, now time.Time) bool {
	last := e.Time
	if e.Last.After(last) {
		last = e.Last
	}
	return (q.Namespace == "" || q.Namespace == e.Service.Namespace) && (q.Name == "" || q.Name == e.Service.Name) &&
		(q.Since == 0 || now.Sub(last) <= q.Since)
}
