package nft

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Conn is a netlink connection to nf_tables of one network namespace. It must
// not be used by several goroutines at the same time.
//
// The kernel processes a request while it is sent, so the answer is available
// when sending returns. Methods therefore wait only for the work of the
// kernel and for transactions of other programs that are in progress.
type Conn struct {
	socket *nfnetlink.Socket
	// inSnapshot is set while Snapshot calls its function.
	inSnapshot bool
}

// receiveBuffer is the size of the receive buffers of sockets. The kernel can
// answer each message of a batch with an error.
const receiveBuffer = 8 << 20

// Open connects to nf_tables in the network namespace of the calling thread.
// The connection stays with that namespace, whichever thread uses it. Reading
// and writing require CAP_NET_ADMIN in the namespace.
func Open() (*Conn, error) {
	s, err := nfnetlink.Open(unix.NETLINK_NETFILTER, receiveBuffer)
	if err != nil {
		return nil, err
	}
	s.Describe = describe
	return &Conn{socket: s}, nil
}

// Port returns the netlink port of the connection. A notify.Monitor reports the
// port from which each transaction was sent.
func (c *Conn) Port() (uint32, error) {
	sa, err := unix.Getsockname(c.socket.FD)
	if err != nil {
		return 0, fmt.Errorf("read port of netlink socket: %w", err)
	}
	return sa.(*unix.SockaddrNetlink).Pid, nil
}

// Close closes the connection. It does not change the ruleset.
func (c *Conn) Close() error { return c.socket.Close() }

// request sends one request to nf_tables and calls each with the attributes
// of every message of the answer. The error is ErrGeneration if the ruleset
// changed while the kernel assembled the answer.
func (c *Conn) request(
	typ, flags uint16, family Family, body func(w *messageWriter), each func(attributes []byte),
) error {
	if flags&unix.NLM_F_DUMP == 0 {
		flags |= unix.NLM_F_ACK // marks the end of the answer, as NLMSG_DONE does for dumps
	}
	w := newRequest(c.socket, typ, flags, family, body)
	err := c.socket.Request(&w.Writer, eachObject(each))
	if errors.Is(err, nfnetlink.ErrInterrupted) {
		return ErrGeneration
	}
	return err
}

// newRequest returns a request to nf_tables.
func newRequest(
	s *nfnetlink.Socket, typ, flags uint16, family Family, body func(w *messageWriter),
) (w messageWriter) {
	w.Seq = s.Seq
	at := w.beginNFT(typ, flags, family)
	if body != nil {
		body(&w)
	}
	w.End(at)
	return w
}

// eachObject returns a function that calls each with the attributes of messages
// of nf_tables.
func eachObject(each func(attributes []byte)) func(nfnetlink.Message) error {
	return func(msg nfnetlink.Message) error {
		if msg.Type()>>8 == unix.NFNL_SUBSYS_NFTABLES && len(msg) >= nfnetlink.HeaderLen {
			each(msg.Attributes())
		}
		return nil
	}
}

// Generation returns the generation of the ruleset. Each transaction of any
// program in the network namespace increments it. It is never 0.
func (c *Conn) Generation() (uint32, error) {
	var gen uint32
	err := c.request(unix.NFT_MSG_GETGEN, 0, 0, nil, func(msg []byte) {
		gen = be32(attr(msg, unix.NFTA_GEN_ID))
	})
	if err == nil && gen == 0 {
		err = nfnetlink.ErrIncomplete
	}
	if err != nil {
		return 0, fmt.Errorf("read generation: %w", err)
	}
	return gen, nil
}

// NextGeneration returns the generation that follows gen. The largest number
// is followed by 1.
func NextGeneration(gen uint32) uint32 { return max(gen+1, 1) }

// snapshotAttempts is the number of attempts to read a snapshot while other
// programs commit.
const snapshotAttempts = 10

// Snapshot calls read, which calls methods of c that read the ruleset, and
// returns the generation to which all their results belong. If another
// program commits meanwhile, Snapshot calls read again. After several
// attempts it returns ErrGeneration.
func (c *Conn) Snapshot(read func() error) (generation uint32, err error) {
	if c.inSnapshot {
		return 0, read()
	}
	c.inSnapshot = true
	defer func() { c.inSnapshot = false }()
	for range snapshotAttempts {
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
		if err != nil || after == before {
			return after, err
		}
	}
	return 0, ErrGeneration
}

// settle waits until no transaction is in progress and returns the generation
// at that time. It sends an empty transaction, which waits for the preceding
// one and does not increment the generation.
func (c *Conn) settle() (uint32, error) {
	for range snapshotAttempts {
		gen, err := c.Generation()
		if err != nil {
			return 0, err
		}
		b := NewBatch(&Table{})
		b.Expect(gen)
		switch err := c.apply(b); {
		case err == nil:
			return gen, nil
		case !errors.Is(err, ErrGeneration):
			// The caller only reads: the error is not about a transaction.
			if errno, ok := errors.AsType[unix.Errno](err); ok {
				return 0, errno
			}
			return 0, fmt.Errorf("wait for transactions: %v", err)
		}
	}
	return 0, ErrGeneration
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
