package table

import (
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/share"
)

// clientSets chooses the affinity sets of service ports. Packets fill them, and
// the clients of one namespace must not fill the sets of others. So a namespace
// gets sets of its own while sets are free, and it shares one set when none is.
// A service port keeps its set, because this has its clients.
type clientSets struct {
	seed  uint64           // of the choice; 0 before Setup
	base  *clientSets      // of a preview: the sets to which it adds
	sets  map[string]uint8 // of service ports, by AffinityName
	users [ruleset.ClientSets]map[string]int
	// until is the time until which the set of a service port is kept that is
	// not committed, or not any more. It is zero for one of an earlier process,
	// which is kept until the service port is served.
	until map[string]time.Time
}

// freePart is the part of the free sets up to which a namespace gets another
// one. So a namespace has at most 7 sets of its own, and 56 namespaces with
// many Services leave one for the next namespace.
const freePart = 16

func newClientSets(seed uint64) *clientSets {
	c := &clientSets{seed: seed, sets: make(map[string]uint8), until: make(map[string]time.Time)}
	for i := range c.users {
		c.users[i] = make(map[string]int)
	}
	return c
}

// preview returns a copy for plans that are never committed.
func (c *clientSets) preview() *clientSets {
	p := newClientSets(c.seed)
	p.base = c
	return p
}

// namespaceOf returns the namespace of a service port by its AffinityName.
func namespaceOf(port string) string {
	namespace, _, _ := strings.Cut(port, ".")
	return namespace
}

// propose returns the set of a service port, which is in a plan that is not
// committed yet.
func (c *clientSets) propose(port string) uint8 {
	set, ok := c.find(port)
	if !ok {
		set = c.choose(port)
		c.add(port, set)
		c.until[port] = time.Now().Add(proposalTime)
	} else if !c.until[port].IsZero() {
		c.until[port] = time.Now().Add(proposalTime)
	}
	return set
}

func (c *clientSets) find(port string) (set uint8, ok bool) {
	if set, ok = c.sets[port]; !ok && c.base != nil {
		return c.base.find(port)
	}
	return set, ok
}

// choose returns a free set if the namespace may have another one, or one of
// those that it has. If it has none, it shares the set of its hash.
func (c *clientSets) choose(port string) uint8 {
	namespace := namespaceOf(port)
	var free, own []uint8
	for set := range uint8(ruleset.ClientSets) {
		if c.isFree(set) {
			free = append(free, set)
		} else if c.has(set, namespace) {
			own = append(own, set)
		}
	}
	hash := int(ruleset.ClientSet(c.seed, port))
	switch {
	case len(free) > 0 && (len(own) == 0 || share.Fits(len(own), 1, len(free)/freePart)):
		for _, set := range free {
			if int(set) >= hash {
				return set
			}
		}
		return free[0]
	case len(own) > 0:
		return own[hash%len(own)]
	}
	return ruleset.ClientSet(c.seed, namespace)
}

func (c *clientSets) isFree(set uint8) bool {
	return len(c.users[set]) == 0 && (c.base == nil || c.base.isFree(set))
}

func (c *clientSets) has(set uint8, namespace string) bool {
	return c.users[set][namespace] > 0 || c.base != nil && c.base.has(set, namespace)
}

func (c *clientSets) add(port string, set uint8) {
	c.remove(port)
	c.sets[port] = set
	c.users[set][namespaceOf(port)]++
}

func (c *clientSets) remove(port string) {
	delete(c.until, port)
	set, ok := c.sets[port]
	if !ok {
		return
	}
	delete(c.sets, port)
	users, namespace := c.users[set], namespaceOf(port)
	if users[namespace]--; users[namespace] == 0 {
		delete(users, namespace)
	}
}

// adopt records the set that a service port has in the kernel.
func (c *clientSets) adopt(port string, set uint8) {
	c.add(port, set)
	c.until[port] = time.Time{}
}

// commit records that the plan of a service port with this set is committed.
func (c *clientSets) commit(port string, set uint8) {
	if have, ok := c.sets[port]; !ok || have != set {
		c.add(port, set)
	}
	delete(c.until, port)
}

// leave records that a service port has no session affinity any more. It has
// its clients for a moment, as they have their endpoints.
func (c *clientSets) leave(port string) { c.until[port] = time.Now().Add(absenceTime) }

// forgetOld forgets the sets that were kept long enough.
func (c *clientSets) forgetOld(now time.Time) {
	for port, until := range c.until {
		if !until.IsZero() && now.After(until) {
			c.remove(port)
		}
	}
	if len(c.until) == 0 { // an emptied map keeps its size
		c.until = make(map[string]time.Time)
	}
}

// forgetEarlier forgets the sets of an earlier process but for those of service
// ports that are not served as they are wanted yet, by AffinityName.
func (c *clientSets) forgetEarlier(waiting map[string]bool) {
	for port, until := range c.until {
		if until.IsZero() && !waiting[port] {
			c.remove(port)
		}
	}
}
