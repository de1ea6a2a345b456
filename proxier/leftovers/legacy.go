package leftovers

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// errWordSize says that the layout of the kernel's structures is another one than is known here.
var errWordSize = errors.New("legacy tables can be changed by programs for 64-bit machines only: use such a build, or restart the node")

// errCounters says that all is removed, but another program without the lock changed the table right after.
var errCounters = errors.New("rules of others in it count from zero again")

// removeFromLegacy removes kube-proxy's chains and rules from the tables of iptables-legacy.
func removeFromLegacy(ctx context.Context, report *Report) error {
	var errs []error
	for _, family := range families {
		used, err := legacyTables(family)
		if err != nil {
			errs = append(errs, err)
		}
		for _, name := range used {
			table := "legacy table " + family.String() + " " + name
			done, err := removeFromLegacyTable(ctx, family, name)
			note(report, table, done)
			if err != nil {
				errs = append(errs, fmt.Errorf("remove chains of kube-proxy from %s: %w", table, err))
			}
		}
	}
	return errors.Join(errs...)
}

// removeFromLegacyTable removes what is kube-proxy's from a table, and returns what was done. Where nothing is to be done, nothing is
// locked.
func removeFromLegacyTable(ctx context.Context, family nft.Family, name string) (done plan, err error) {
	s, err := openLegacy(family)
	if err != nil {
		return plan{}, err
	}
	defer s.close()
	if _, todo, err := s.plan(name); err != nil || todo.empty() {
		return todo, err
	}
	if strconv.IntSize != 64 {
		return plan{}, errWordSize
	}
	unlock, err := lock(ctx, xtablesLock, lockWait)
	if err != nil {
		return plan{}, err
	}
	defer unlock()
	for range attempts {
		done, err = s.remove(name)
		if !errors.Is(err, unix.EAGAIN) || ctx.Err() != nil { // EAGAIN: somebody without the lock changed the table since it was read
			break
		}
	}
	return done, err
}

// plan reads a table and decides what goes.
func (s *legacySocket) plan(name string) (t legacyTable, todo plan, err error) {
	t, err = s.read(name)
	if err != nil {
		return t, plan{}, err
	}
	c, err := t.contents()
	if err != nil {
		return t, plan{}, err
	}
	return t, makePlan(c, nil), nil
}

// remove replaces a table by one without what is kube-proxy's. Packets meet either of the two. What stays begins to count anew then,
// and so gets what it had counted until then back.
func (s *legacySocket) remove(name string) (done plan, err error) {
	t, todo, err := s.plan(name)
	if err != nil || todo.empty() {
		return todo, err
	}
	to, kept, err := t.rewrite(todo)
	if err != nil {
		return plan{}, err
	}
	counted, err := s.replace(to, len(t.entries))
	if err != nil {
		return plan{}, err
	}
	counters := make([]legacyCounter, len(kept))
	for i, was := range kept {
		counters[i] = counted[was]
	}
	if err := s.addCounters(name, counters); err != nil {
		return todo, fmt.Errorf("%w: %w", errCounters, err)
	}
	return todo, nil
}
