package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// objectKind is a kind of objects that the kernel lists.
type objectKind struct {
	name          string
	request       uint16
	table, handle uint16 // the attributes with the name of the table and the handle
}

var (
	kindChain  = objectKind{"chains", unix.NFT_MSG_GETCHAIN, unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_HANDLE}
	kindSet    = objectKind{"sets", unix.NFT_MSG_GETSET, unix.NFTA_SET_TABLE, nftaSetHandle}
	kindObject = objectKind{"objects", unix.NFT_MSG_GETOBJ, unix.NFTA_OBJ_TABLE, nftaObjHandle}
	kindRule   = objectKind{"rules", unix.NFT_MSG_GETRULE, unix.NFTA_RULE_TABLE, unix.NFTA_RULE_HANDLE}
)

// find reads one object. It returns ok as false if the kernel does not have
// the object.
func find[T any](
	c *Conn, typ uint16, f Family, body func(w *messageWriter), decode func(attributes []byte) T,
) (found T, ok bool, err error) {
	err = c.request(typ, 0, f, body, func(msg []byte) { found, ok = decode(msg), true })
	if errors.Is(err, unix.ENOENT) {
		return found, false, nil
	}
	return found, ok, err
}

// dump reads the objects of one kind in a table, or the rules of a chain,
// that decode accepts. It returns none if the table does not exist. All
// objects belong to one generation.
func dump[T any](
	c *Conn, kind objectKind, t *Table, chain string, decode func(attributes []byte) (T, bool),
) ([]T, error) {
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

// dumpOnce calls each with the attributes of every object. It returns
// ErrGeneration if the objects may belong to several generations.
//
// NLM_F_DUMP_INTR alone is not sufficient to detect that. The kernel
// increments the generation before it unlinks deleted objects, and it resumes
// a dump at a position that it finds by counting. Whether it counts a chain
// that is being added or deleted can change between two pieces of the dump.
// Therefore a dump begins when no transaction is in progress (see Snapshot),
// and fails if it reads an object twice.
func (c *Conn) dumpOnce(kind objectKind, t *Table, chain string, each func(attributes []byte)) error {
	seen := make(map[uint64]struct{})
	twice := false
	err := c.request(kind.request, unix.NLM_F_DUMP, t.Family,
		func(w *messageWriter) {
			w.CString(kind.table, t.Name)
			if chain != "" {
				w.CString(unix.NFTA_RULE_CHAIN, chain)
			}
		},
		func(msg []byte) {
			if cString(attr(msg, kind.table)) != t.Name { // some kernels list the objects of all tables
				return
			}
			handle := be64(attr(msg, kind.handle))
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
