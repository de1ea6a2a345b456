package conntrack

import (
	"cmp"
	"net/netip"
	"slices"
)

// selections are the dumps that list some flows of one family, at most
// maxNarrowDumps. If these are too many, they become wider: one for each
// protocol and port, or else for each protocol. IPv6 starts with one for each
// port, because the kernel cannot filter by IPv6 address.
type selections struct {
	list  []Selection
	width int // 1 without addresses, 2 without ports, too
}

// maxNarrowDumps is the largest result of maxDumps.
const maxNarrowDumps = 7

func (s *selections) add(one Selection) {
	if s.width > 0 || one.Family == IPv6 {
		one.Addr = netip.Addr{}
	}
	if s.width > 1 {
		one.Port = 0
	}
	if !slices.Contains(s.list, one) {
		s.list = append(s.list, one)
		s.limit(maxNarrowDumps)
	}
}

// limit makes the selections wider until there are at most n, or one for each
// protocol.
func (s *selections) limit(n int) {
	for len(s.list) > n && s.width < 2 {
		s.merge(selections{width: s.width + 1})
	}
}

func (s *selections) merge(o selections) {
	all := slices.Concat(s.list, o.list)
	*s = selections{width: max(s.width, o.width)}
	for _, one := range all {
		s.add(one)
	}
}

// sorted returns at most n selections, or one for each protocol.
func (s selections) sorted(n int) []Selection {
	s.limit(n)
	return slices.SortedFunc(slices.Values(s.list), func(a, b Selection) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port))
	})
}

// plan returns the dumps that list all flows to the frontends and removed
// endpoints of a check, for a table with this number of entries: as many narrow
// ones as cost less than they save. Attempts without an answer are few, and the
// kernel sends no others (Linux 5.10 does), so a second dump of them saves
// nothing.
func plan(c *check, entries int) (dumps []Selection) {
	limit := maxDumps(entries)
	for _, family := range []Family{IPv4, IPv6} {
		dumps = slices.Concat(dumps, c.changed.of(family).sorted(limit), c.attempts.of(family).sorted(1),
			c.removed(family).sorted(limit))
	}
	return dumps
}

// maxDumps returns how many narrow dumps cost no more than one wide dump.
//
// The kernel walks its whole hash table for each dump. A filter only saves
// the messages for the flows that it excludes. Measured on Linux 6.18 with
// 262,144 buckets (the default from 4 GiB of memory on), a walk takes 8.6 ms
// plus 0.25 µs per entry, and a message takes 1.7 µs in the kernel and here.
// So one more walk pays if it saves the messages for about 5,000 flows plus
// a seventh of all entries. It cannot save more than all entries.
func maxDumps(entries int) int {
	return 1 + entries/(5000+entries/7)
}
