package nft

import (
	"testing"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Sent returns the bytes that a commit of the batch sends.
func (b *Batch) Sent() []byte { return b.finish() }

// BeginDump requests a dump and does not read the answer.
func BeginDump(c *Conn, typ uint16) {
	w := newRequest(c.socket, typ, unix.NLM_F_DUMP, IPv4, nil)
	c.socket.Seq = w.Seq
	if err := c.socket.Send(w.Buf); err != nil {
		panic(err)
	}
}

// Names returns the names of the types of the fields.
func (f Fields) Names() []string {
	var names []string
	for _, t := range f.types {
		names = append(names, t.name)
	}
	return names
}

// LimitBuffer makes the receive buffer of a Tracer smaller.
func (t *Tracer) LimitBuffer(tb testing.TB, size int) {
	tb.Helper()
	if err := unix.SetsockoptInt(t.socket.FD, unix.SOL_SOCKET, unix.SO_RCVBUF, size); err != nil {
		tb.Fatal(err)
	}
}

// NotIn yields `ip daddr . th dport != @set`: the values are not in the set.
func NotIn(set *Set, exprs ...Expr) Statement {
	return lookup(exprs, &expr.Lookup{SetName: set.Name, Invert: true})
}
