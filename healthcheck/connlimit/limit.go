// Package connlimit limits the number of connections of a server in a way that
// clients that hold connections do not keep other clients out.
//
// A [Limit] never makes a client wait. Above the limit, a new connection takes
// the place of another one: of the group with the most connections, the one
// that has been unused the longest. A group is, for example, all connections
// from one address.
//
// The package does not accept, read or close connections: it calls functions.
// It knows neither Kubernetes nor a protocol.
package connlimit

import (
	"container/list"
	"sync"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

// OpenFiles returns the limit of open files of the process (RLIMIT_NOFILE).
// Package os has raised it to the hard limit. It returns 0 if the limit is
// unknown, and at most 1<<20, because more are of no use.
func OpenFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(limit.Cur, 1<<20))
}

// logPeriod is the minimum interval between messages about a limit.
const logPeriod = 10 * time.Second

// Limit limits the number of connections. Its methods are safe for concurrent
// use.
type Limit[G comparable] struct {
	name string
	max  int

	mu     sync.Mutex
	groups map[G]*list.List // of *Conn, the one that has been unused the longest first
	open   int
	uses   uint64 // number of uses of all connections: a clock
	logged time.Time
}

// New returns a limit of n connections, at least 1. Its name appears in log
// messages.
func New[G comparable](name string, n int) *Limit[G] {
	return &Limit[G]{name: name, max: max(n, 1), groups: make(map[G]*list.List)}
}

// Conn is the place of a connection in a Limit.
type Conn[G comparable] struct {
	limit *Limit[G]
	group G
	end   func()
	place *list.Element // in its group; nil after Release
	used  uint64        // value of limit.uses at the last use
}

// Add adds a connection to a group. If the limit is exceeded, it releases
// another connection and calls its function end.
func (l *Limit[G]) Add(group G, end func()) *Conn[G] {
	c := &Conn[G]{limit: l, group: group, end: end}
	if replaced := l.add(c); replaced != nil {
		replaced.end()
	}
	return c
}

func (l *Limit[G]) add(c *Conn[G]) (replaced *Conn[G]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.groups[c.group] == nil {
		l.groups[c.group] = list.New()
	}
	c.place = l.groups[c.group].PushBack(c)
	l.use(c)
	l.open++
	if l.open <= l.max {
		return nil
	}
	replaced = l.unused()
	l.release(replaced)
	if time.Since(l.logged) >= logPeriod {
		l.logged = time.Now()
		klog.InfoS("Reached the limit of connections, closing one that is not in use for each new one",
			"server", l.name, "limit", l.max, "group", replaced.group)
	}
	return replaced
}

// unused returns the connection whose place the next one takes. This is not a
// connection that was just added, because the uses of all others are older.
func (l *Limit[G]) unused() (found *Conn[G]) {
	most := 0
	for _, conns := range l.groups {
		first := conns.Front().Value.(*Conn[G])
		if n := conns.Len(); n > most || n == most && first.used < found.used {
			most, found = n, first
		}
	}
	return found
}

// Use records that the connection is in use.
func (c *Conn[G]) Use() {
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	if c.place != nil {
		c.limit.use(c)
	}
}

func (l *Limit[G]) use(c *Conn[G]) {
	l.uses++
	c.used = l.uses
	l.groups[c.group].MoveToBack(c.place)
}

// Release removes the connection from the limit. Further calls have no effect.
func (c *Conn[G]) Release() {
	c.limit.mu.Lock()
	defer c.limit.mu.Unlock()
	if c.place != nil {
		c.limit.release(c)
	}
}

func (l *Limit[G]) release(c *Conn[G]) {
	conns := l.groups[c.group]
	conns.Remove(c.place)
	if conns.Len() == 0 {
		delete(l.groups, c.group)
	}
	c.place = nil
	l.open--
}
