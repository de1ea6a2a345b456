package nft

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Counter describes a named counter, with which rules count packets (Count), or
// a counter in the kernel.
type Counter struct {
	Name string
	// Handle is the number of the counter in the kernel, which the kernel never
	// assigns twice within a table.
	Handle  uint64
	Packets uint64
}

// Count yields `counter name "drops"`: the counter counts the packet.
func Count(c *Counter) Statement {
	return Statement{&expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: c.Name}}
}

// AddCounter adds a counter that counts from 0. If it exists, it keeps its
// values.
func (b *Batch) AddCounter(c *Counter) {
	b.add(kindCounter, sentMessage{object: c.Name}, func(w *messageWriter) {
		w.Unnest(w.Nest(unix.NFTA_OBJ_DATA))
	})
}

// DeleteCounter deletes a counter. The commit fails if the counter does not
// exist, or if rules refer to it.
func (b *Batch) DeleteCounter(name string) { b.delete("delete counter", kindCounter, name) }

// counterExpr is the name of the expression that counts packets.
const counterExpr = "counter"

// FindCounter reads a counter of the table. It returns ok as false if the
// counter does not exist.
func (c *Conn) FindCounter(t *Table, name string) (found Counter, ok bool, err error) {
	return find(c, kindCounter, t, name, parseCounter)
}

// Counters reads the counters of the table. It returns none if the table does
// not exist. See Chains for ErrGeneration.
func (c *Conn) Counters(t *Table) ([]Counter, error) {
	return dump(c, kindCounter, t, "", func(msg []byte) (Counter, bool) {
		return parseCounter(msg), be32(attr(msg, unix.NFTA_OBJ_TYPE)) == unix.NFT_OBJECT_COUNTER
	})
}

func parseCounter(msg []byte) Counter {
	data := attr(msg, unix.NFTA_OBJ_DATA)
	return Counter{
		Name: cString(attr(msg, unix.NFTA_OBJ_NAME)), Handle: be64(attr(msg, nftaObjHandle)),
		Packets: be64(attr(data, unix.NFTA_COUNTER_PACKETS)),
	}
}
