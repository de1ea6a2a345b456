package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// objectKind is a kind of objects that the kernel lists: the request for it, and the attributes that say of which table an object is
// and what handle it has.
type objectKind struct {
	name          string
	request       uint16
	table, handle uint16
}

var (
	kindChain = objectKind{"chains", unix.NFT_MSG_GETCHAIN, unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_HANDLE}
	kindSet   = objectKind{"sets", unix.NFT_MSG_GETSET, unix.NFTA_SET_TABLE, nftaSetHandle}
	kindRule  = objectKind{"rules", unix.NFT_MSG_GETRULE, unix.NFTA_RULE_TABLE, unix.NFTA_RULE_HANDLE}
)

// dumpAttempts is the number of times that a snapshot is tried while other
// programs commit.
const dumpAttempts = 10

// dump reads the objects of one kind that a table has, or the rules that a chain
// has, as decode returns them; none if there is no such table. All are of one
// generation.
func dump[T any](c *Conn, kind objectKind, t *Table, chain string, decode func(attributes []byte) (T, bool)) ([]T, error) {
	var found []T
	_, err := c.Snapshot(func() error {
		found = nil
		return c.dumpOnce(kind, t, chain, func(msg []byte) {
			if object, ok := decode(msg); ok {
				found = append(found, object)
			}
		})
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s of %s: %w", kind.name, t, err)
	}
	return found, nil
}

// Snapshot calls read, which calls other methods of c that read the ruleset, and
// returns the generation that all they returned is of. If another program commits
// meanwhile, Snapshot calls read again; if that keeps happening, it returns
// ErrGeneration.
func (c *Conn) Snapshot(read func() error) (generation uint32, err error) {
	if c.inSnapshot {
		return 0, read()
	}
	c.inSnapshot = true
	defer func() { c.inSnapshot = false }()
	for range dumpAttempts {
		before, err := c.settle()
		if err == nil {
			err = read()
		}
		if errors.Is(err, ErrGeneration) {
			continue
		}
		if err != nil {
			return 0, err
		}
		after, err := c.Generation()
		if err != nil {
			return 0, err
		}
		if after == before {
			return after, nil
		}
	}
	return 0, ErrGeneration
}

// dumpOnce calls each with the attributes of every object. ErrGeneration says
// that they may be of several generations.
//
// NLM_F_DUMP_INTR alone does not show that. The kernel moves the generation
// before it takes deleted objects from its lists, and finds the place where a
// dump goes on by counting; it counts some chains that are being added or deleted
// one time and not the next. So a dump begins when no transaction is being
// carried out (see Snapshot), and must not have read any object twice.
func (c *Conn) dumpOnce(kind objectKind, t *Table, chain string, each func(attributes []byte)) error {
	seen := make(map[uint64]struct{})
	twice := false
	err := c.request(kind.request, unix.NLM_F_DUMP, t.Family,
		func(w *messageWriter) {
			w.string(kind.table, t.Name)
			if chain != "" {
				w.string(unix.NFTA_RULE_CHAIN, chain)
			}
		},
		func(msg []byte) {
			table, handle := kind.identify(msg)
			if table != t.Name { // kernels differ in whether they select by table
				return
			}
			_, again := seen[handle]
			seen[handle] = struct{}{}
			twice = twice || again
			each(msg)
		})
	if err == nil && twice {
		err = ErrGeneration
	}
	return err
}

// identify returns the table and the handle of an object.
func (k objectKind) identify(msg []byte) (table string, handle uint64) {
	attrs(msg, func(typ uint16, value []byte) {
		switch typ {
		case k.table:
			table = cString(value)
		case k.handle:
			handle = be64(value)
		}
	})
	return table, handle
}

// settle waits until no transaction is being carried out, and returns the generation then. An empty transaction does that: it waits for
// the one before it, and moves nothing.
func (c *Conn) settle() (uint32, error) {
	for range dumpAttempts {
		gen, err := c.Generation()
		if err != nil {
			return 0, err
		}
		b := NewBatch(&Table{})
		b.Expect(gen)
		b.start()
		if err := c.send(b.finish()); err != nil {
			return 0, err
		}
		switch err := c.refusal(); {
		case err == nil:
			return gen, nil
		case !errors.Is(err, unix.ERESTART):
			return 0, err
		}
	}
	return 0, ErrGeneration
}

// refusal returns the error that the kernel answered to what was sent, nil if it answered nothing.
func (c *Conn) refusal() error {
	msg, err := c.receive()
	if errors.Is(err, unix.EAGAIN) {
		return nil
	}
	if err != nil {
		return err
	}
	r, err := parseReply(msg)
	if err != nil {
		return err
	}
	return r.err()
}
