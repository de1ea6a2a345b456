package nft

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// BeginDump requests a dump and does not read the answer.
func BeginDump(c *Conn, typ uint16) {
	w := newRequest(c.socket, typ, unix.NLM_F_DUMP, IPv4, nil)
	c.socket.Seq = w.Seq
	if err := c.socket.Send(w.Buf); err != nil {
		panic(err)
	}
}

// NotIn yields `ip daddr . th dport != @set`: the values are not in the set.
func NotIn(set *Set, exprs ...Expr) Statement {
	return lookup(exprs, &expr.Lookup{SetName: set.Name, Invert: true})
}
