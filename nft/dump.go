package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// objectKind is a kind of objects that the kernel adds, reads and deletes by
// their names.
type objectKind struct {
	name, addition   string // addition is the operation as nft writes it
	add, get, delete uint16 // messages
	// Attributes: the name of the table, the name of the object (of a rule: of
	// its chain; of a row: of its set; 0 for a table), and the handle.
	table, object, handle uint16
}

var (
	kindTable = &objectKind{"table", "add table",
		unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_GETTABLE, unix.NFT_MSG_DELTABLE,
		unix.NFTA_TABLE_NAME, 0, nftaTableHandle}
	kindChain = &objectKind{"chain", "add chain",
		unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_DELCHAIN,
		unix.NFTA_CHAIN_TABLE, unix.NFTA_CHAIN_NAME, unix.NFTA_CHAIN_HANDLE}
	kindSet = &objectKind{"set", "add set",
		unix.NFT_MSG_NEWSET, unix.NFT_MSG_GETSET, unix.NFT_MSG_DELSET,
		unix.NFTA_SET_TABLE, unix.NFTA_SET_NAME, nftaSetHandle}
	kindCounter = &objectKind{"counter", "add counter",
		unix.NFT_MSG_NEWOBJ, unix.NFT_MSG_GETOBJ, unix.NFT_MSG_DELOBJ,
		unix.NFTA_OBJ_TABLE, unix.NFTA_OBJ_NAME, nftaObjHandle}
	kindRule = &objectKind{"rule", "add rule",
		unix.NFT_MSG_NEWRULE, unix.NFT_MSG_GETRULE, unix.NFT_MSG_DELRULE,
		unix.NFTA_RULE_TABLE, unix.NFTA_RULE_CHAIN, unix.NFTA_RULE_HANDLE}
	kindRow = &objectKind{"element", "add element",
		unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_GETSETELEM, unix.NFT_MSG_DELSETELEM,
		unix.NFTA_SET_ELEM_LIST_TABLE, unix.NFTA_SET_ELEM_LIST_SET, 0}
)

// names writes the attributes that identify an object.
func (w *messageWriter) names(kind *objectKind, t *Table, object string) {
	w.CString(kind.table, t.Name)
	if kind.object != 0 {
		w.CString(kind.object, object)
	}
	if kind == kindCounter {
		w.Uint32(unix.NFTA_OBJ_TYPE, unix.NFT_OBJECT_COUNTER)
	}
}

// find reads one object. It returns ok as false if the kernel does not have
// the object.
func find[T any](
	c *Conn, kind *objectKind, t *Table, name string, decode func(attributes []byte) T,
) (found T, ok bool, err error) {
	err = c.request(kind.get, 0, t.Family, func(w *messageWriter) { w.names(kind, t, name) },
		func(msg []byte) { found, ok = decode(msg), true })
	switch {
	case err == nil:
		return found, ok, nil
	case errors.Is(err, unix.ENOENT):
		err = nil
	case kind == kindTable:
		err = fmt.Errorf("read %s: %w", t, err)
	default:
		err = fmt.Errorf("read %s %s of %s: %w", kind.name, name, t, err)
	}
	return *new(T), false, err
}

// dump reads the objects of one kind in a table, or the rules of a chain, or
// the rows of a set, that decode accepts. It returns none if the table does not
// exist. All objects belong to one generation.
func dump[T any](
	c *Conn, kind *objectKind, t *Table, of string, decode func(attributes []byte) (T, bool),
) ([]T, error) {
	var found []T
	_, err := c.Snapshot(func() error {
		found = nil
		return c.dumpOnce(kind, t, of, func(msg []byte) {
			if object, ok := decode(msg); ok {
				found = append(found, object)
			}
		})
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		return nil, nil
	case err != nil && kind == kindRow:
		return nil, fmt.Errorf("read rows of set %s of %s: %w", of, t, err)
	case err != nil:
		return nil, fmt.Errorf("read %ss of %s: %w", kind.name, t, err)
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
func (c *Conn) dumpOnce(kind *objectKind, t *Table, of string, each func(attributes []byte)) error {
	seen := make(map[uint64]struct{})
	twice := false
	err := c.request(kind.get, unix.NLM_F_DUMP, t.Family,
		func(w *messageWriter) {
			w.CString(kind.table, t.Name)
			if of != "" {
				w.CString(kind.object, of)
			}
		},
		func(msg []byte) {
			if cString(attr(msg, kind.table)) != t.Name { // some kernels list the objects of all tables
				return
			}
			handle := be64(attr(msg, kind.handle))
			_, again := seen[handle]
			seen[handle] = struct{}{}
			twice = twice || again && kind != kindRow // which has no handle
			each(msg)
		})
	if err == nil && twice {
		err = ErrGeneration
	}
	return err
}
