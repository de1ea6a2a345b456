package nft

import (
	"fmt"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// CtTimeout describes an object `ct timeout`: timeouts of connection tracking,
// by state, for the connections to which rules give it (SetCtTimeout). It can
// also be an object in the kernel.
type CtTimeout struct {
	Name     string
	Protocol uint8 // unix.IPPROTO_TCP or IPPROTO_UDP
	Policy   TimeoutPolicy
	// Handle is the number of the object in the kernel, which the kernel never
	// assigns twice within a table.
	Handle uint64
}

// TimeoutPolicy has timeouts in seconds, in the order of TimeoutStates. When an
// object is added, the kernel copies those that are 0 from the sysctls of the
// network namespace (net.netfilter.nf_conntrack_tcp_timeout_syn_sent). The
// object does not follow them later.
type TimeoutPolicy [maxTimeoutStates]uint32

const maxTimeoutStates = 11

// TimeoutStates returns the states of connection tracking that have a timeout
// in a protocol, with the names of nft. The position of a state is its
// attribute of linux/netfilter/nfnetlink_cttimeout.h less 1. It returns nil for
// other protocols than TCP and UDP, for which nft has no syntax.
func TimeoutStates(protocol uint8) []string {
	switch protocol {
	case unix.IPPROTO_TCP:
		return []string{"syn_sent", "syn_recv", "established", "fin_wait", "close_wait", "last_ack", "time_wait",
			"close", "syn_sent2", "retrans", "unack"}
	case unix.IPPROTO_UDP:
		return []string{"unreplied", "replied"}
	}
	return nil
}

// Matches reports whether the object has the protocol of another one, and all
// its timeouts that are not 0.
func (c *CtTimeout) Matches(want *CtTimeout) bool {
	for i, seconds := range want.Policy {
		if seconds != 0 && c.Policy[i] != seconds {
			return false
		}
	}
	return c.Protocol == want.Protocol
}

// SetCtTimeout yields `ct timeout set "retry"`: a new connection of the
// protocol of the object has its timeouts. Other packets pass the statement.
func SetCtTimeout(c *CtTimeout) Statement {
	return Statement{&expr.Objref{Type: unix.NFT_OBJECT_CT_TIMEOUT, Name: c.Name}}
}

// Attributes of the data of an object (enum nft_ct_timeout_attributes).
const (
	ctTimeoutL3Proto = 1
	ctTimeoutL4Proto = 2
	ctTimeoutData    = 3
)

// AddCtTimeout adds an object `ct timeout`. If it exists, it keeps its values:
// an object cannot be changed. A batch can delete it and add it again.
func (b *Batch) AddCtTimeout(c *CtTimeout) {
	states := TimeoutStates(c.Protocol)
	if states == nil {
		b.refuse(kindCtTimeout.addition, c.Name, fmt.Sprintf("protocol %d is not supported", c.Protocol))
	}
	b.add(kindCtTimeout, sentMessage{object: c.Name}, func(w *messageWriter) {
		data := w.Nest(unix.NFTA_OBJ_DATA)
		w.Uint16(ctTimeoutL3Proto, uint16(b.table.Family))
		w.Uint8(ctTimeoutL4Proto, c.Protocol)
		policy := w.Nest(ctTimeoutData)
		for i := range states {
			if c.Policy[i] != 0 {
				w.Uint32(uint16(i+1), c.Policy[i])
			}
		}
		w.Unnest(policy)
		w.Unnest(data)
	})
}

// DeleteCtTimeout deletes an object `ct timeout`. Its connections get the
// timeouts of the sysctls. The commit fails if the object does not exist, or if
// rules refer to it.
func (b *Batch) DeleteCtTimeout(name string) { b.delete("delete ct timeout", kindCtTimeout, name) }

// CtTimeouts reads the objects `ct timeout` of the table. It returns none if
// the table does not exist. See Chains for ErrGeneration.
func (c *Conn) CtTimeouts(t *Table) ([]CtTimeout, error) {
	return dump(c, kindCtTimeout, t, "", func(msg []byte) (CtTimeout, bool) {
		return parseCtTimeout(msg), be32(attr(msg, unix.NFTA_OBJ_TYPE)) == unix.NFT_OBJECT_CT_TIMEOUT
	})
}

func parseCtTimeout(msg []byte) CtTimeout {
	found := CtTimeout{Name: cString(attr(msg, unix.NFTA_OBJ_NAME)), Handle: be64(attr(msg, nftaObjHandle))}
	data := attr(msg, unix.NFTA_OBJ_DATA)
	if protocol := attr(data, ctTimeoutL4Proto); len(protocol) == 1 {
		found.Protocol = protocol[0]
	}
	states := len(TimeoutStates(found.Protocol))
	eachAttr(attr(data, ctTimeoutData), func(typ uint16, value []byte) {
		if i := int(typ) - 1; i >= 0 && i < states {
			found.Policy[i] = be32(value)
		}
	})
	return found
}

// lines returns the declaration of the object. nft omits timeouts that equal
// its own defaults, which are not those of the kernel.
func (c *CtTimeout) lines(f Family) []string {
	var policy []string
	for i, state := range TimeoutStates(c.Protocol) {
		if c.Policy[i] != 0 {
			policy = append(policy, fmt.Sprintf("%s : %d", state, c.Policy[i]))
		}
	}
	return []string{
		"protocol " + nfnetlink.ProtocolName(c.Protocol),
		"l3proto " + f.String(),
		"policy = { " + strings.Join(policy, ", ") + " }",
	}
}
