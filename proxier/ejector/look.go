package ejector

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/eject"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// lookPause is the time after which suspects whose namespaces had no CPU time
// left are looked at again.
const lookPause = 200 * time.Millisecond

// look passes the answered connections of suspects to the Detector: of those
// whose namespaces have CPU time left. It returns the time of the next look.
func (e *Ejector) look(ctx context.Context, suspects []eject.Endpoint) time.Time {
	now := time.Now()
	limit := e.maxLists()
	each := float64(e.narrow.Milliseconds()+1) * float64(min(limit, len(suspects))) / float64(len(suspects))
	mine := slices.DeleteFunc(suspects, func(s eject.Endpoint) bool {
		return !e.looks.UseSome(s.Namespace, each, now)
	})
	if len(mine) == 0 {
		return now.Add(lookPause)
	}
	answers, lasts := make(map[netip.AddrPort][]eject.Answer, len(mine)), lasts(e.timeouts)
	for _, s := range mine {
		answers[s.Addr] = nil
	}
	add := func(c conntrack.Connection) {
		if _, wanted := answers[c.Endpoint]; wanted {
			a := eject.Answer{ID: c.ID, Client: c.Client.Addr(), Lasts: lasts[c.State]}
			answers[c.Endpoint] = append(answers[c.Endpoint], a)
		}
	}
	lists := lists(answers, conntrack.Selection{
		Protocol: unix.IPPROTO_TCP, Translated: true, Answer: conntrack.Answered,
	}, e.config.Families, limit)
	took, err := keep.ThreadTimeOf(func() (err error) {
		for _, s := range lists {
			failed := e.conn.Select(ctx, s, add)
			err = errors.Join(err, failed)
		}
		return err
	})
	e.walkTime.Add(took.Seconds())
	e.narrow = took / time.Duration(min(len(mine), limit))
	if used := float64(took.Microseconds()) / 1000 / float64(len(mine)); used > each {
		for _, s := range mine {
			e.looks.Charge(s.Namespace, used-each, now)
		}
	}
	if e.report(err); err != nil {
		return now.Add(minPeriod)
	}
	for _, s := range mine {
		e.detector.Answers(now, s, answers[s.Addr])
	}
	return now
}

// lasts returns the times for which connection tracking remembers a connection
// that has ended, by its state. A timeout of 0 is not known.
func lasts(timeouts nft.TimeoutPolicy) map[string]time.Duration {
	all := map[string]time.Duration{ // defaults of the kernel
		"FIN_WAIT": 120 * time.Second, "LAST_ACK": 30 * time.Second, "TIME_WAIT": 120 * time.Second,
		"CLOSE": 10 * time.Second,
	}
	for i, name := range nft.TimeoutStates(unix.IPPROTO_TCP) {
		state := strings.ToUpper(name)
		if _, ended := all[state]; ended && timeouts[i] > 0 {
			all[state] = time.Duration(timeouts[i]) * time.Second
		}
	}
	return all
}

// maxLists returns the number of endpoints whose connections are listed one by
// one. With more, a list of all connections costs less.
func (e *Ejector) maxLists() int {
	entries, err := e.conn.Entries()
	if e.report(err); err != nil {
		return 1
	}
	return conntrack.MaxDumps(entries)
}

// lists returns the lists that have the selected connections of endpoints:
// those of all connections if they are more than limit.
func lists[T any](
	endpoints map[netip.AddrPort]T, s conntrack.Selection, families []nft.Family, limit int,
) (all []conntrack.Selection) {
	if len(endpoints) > limit {
		for _, f := range families {
			s.Family = f
			all = append(all, s)
		}
		return all
	}
	s.Replies = true
	for at := range endpoints {
		s.Family, s.Addr, s.Port = nft.FamilyOf(at.Addr()), at.Addr(), at.Port()
		all = append(all, s)
	}
	return all
}

// clean deletes the attempts to connect to ejected endpoints of the frontends
// that the last walk found: the clients' next packets reach others.
func (e *Ejector) clean(ctx context.Context) {
	endpoints := make(map[netip.AddrPort]struct{})
	for _, p := range e.ports {
		all, _ := e.detector.Ejections(p)
		for _, ejection := range all {
			if !ejection.OnTrial {
				endpoints[ejection.Endpoint] = struct{}{}
			}
		}
	}
	ejected := func(frontend, endpoint netip.AddrPort) bool {
		p, ok := e.ports[frontend]
		return ok && e.detector.Ejected(eject.Endpoint{Port: p, Addr: endpoint})
	}
	lists := lists(endpoints, conntrack.Selection{Translated: true, Limit: maxRead}, e.config.Families, e.maxLists())
	n := 0
	took, err := keep.ThreadTimeOf(func() (err error) {
		for _, s := range lists {
			deleted, failed := e.conn.DeleteAttempts(ctx, s, ejected)
			n, err = n+deleted, errors.Join(err, failed)
		}
		return err
	})
	e.charge(took)
	if err != nil {
		klog.ErrorS(err, "Failed to delete attempts to connect to ejected endpoints, retrying")
		e.cleanAt = time.Now().Add(minPeriod)
		return
	}
	klog.V(2).InfoS("Deleted attempts to connect to ejected endpoints", "attempts", n)
}
