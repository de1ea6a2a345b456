package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

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
