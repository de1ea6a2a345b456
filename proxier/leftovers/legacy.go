package leftovers

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// errWordSize is returned on 32-bit machines, which have other layouts of the
// kernel's structures.
var errWordSize = errors.New("only a 64-bit build can change legacy tables: use one, or restart the node")

// errCounters is returned if the leftovers were removed, but another program,
// which did not take the lock, changed the table before its counters were
// restored.
var errCounters = errors.New("counters of other programs' rules were reset")

// removeFromLegacy removes kube-proxy's chains and rules from the tables of
// iptables-legacy.
func removeFromLegacy(ctx context.Context, r *report) error {
	var errs []error
	for _, family := range families {
		used, err := legacyTables(family)
		if err != nil {
			errs = append(errs, err)
		}
		for _, name := range used {
			table := "legacy table " + family.String() + " " + name
			done, err := removeFromLegacyTable(ctx, family, name)
			r.addTable(table, done)
			if err != nil {
				errs = append(errs, fmt.Errorf("remove leftovers from %s: %w", table, err))
			}
		}
	}
	return errors.Join(errs...)
}

// removeFromLegacyTable removes the leftovers from a table and returns the
// plan that was carried out. It takes no lock if there are no leftovers.
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
		// EAGAIN: a program without the lock changed the table since the
		// read.
		if !errors.Is(err, unix.EAGAIN) || ctx.Err() != nil {
			break
		}
	}
	return done, err
}

// plan reads a table and returns the plan for it.
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

// remove replaces a table by one without the leftovers. The replacement is
// atomic for packets. It resets all counters, so remove restores them.
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
