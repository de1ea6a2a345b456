package nft

import (
	"fmt"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// SetTrace yields `meta nftrace set 1`: from here on, the kernel reports each
// rule that the packet matches to every Tracer.
func SetTrace() Statement { return trace(1) }

// UnsetTrace yields `meta nftrace set 0`.
func UnsetTrace() Statement { return trace(0) }

func trace(on byte) Statement {
	return statement(fmt.Sprintf("meta nftrace set %d", on),
		&expr.Immediate{Register: reg1, Data: []byte{on}},
		&expr.Meta{Key: expr.MetaKeyNFTRACE, Register: reg1, SourceRegister: true})
}

// LimitRate yields `limit rate 10/second burst 20 packets`: it matches so many
// packets each second, and the first ones of a burst.
func LimitRate(perSecond, burst uint32) Statement {
	const defaultBurst = 5 // which nft omits
	text := fmt.Sprintf("limit rate %d/second", perSecond)
	if burst != defaultBurst {
		text += fmt.Sprintf(" burst %d packets", burst)
	}
	return statement(text, &expr.Limit{
		Type: expr.LimitTypePkts, Rate: uint64(perSecond), Unit: expr.LimitTimeSecond, Burst: burst,
	})
}

// TCPSyn yields `tcp flags syn / syn,ack`: the packet begins a TCP connection.
func TCPSyn() Statement {
	const flagsAt, syn, ack = 13, 0x02, 0x10
	load := &expr.Payload{DestRegister: reg1, Base: expr.PayloadBaseTransportHeader, Offset: flagsAt, Len: 1}
	return statement("tcp flags syn / syn,ack", append(matchL4Proto(unix.IPPROTO_TCP), load,
		&expr.Bitwise{SourceRegister: reg1, DestRegister: reg1, Len: 1, Mask: []byte{syn | ack}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: []byte{syn}})...)
}

// SCTPInit yields `meta l4proto sctp @th,96,8 0x1`: the packet begins an SCTP
// association.
func SCTPInit() Statement {
	const chunkAt, initChunk = 12, 1
	load := &expr.Payload{DestRegister: reg1, Base: expr.PayloadBaseTransportHeader, Offset: chunkAt, Len: 1}
	return statement("meta l4proto sctp @th,96,8 0x1", append(matchL4Proto(unix.IPPROTO_SCTP), load,
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg1, Data: []byte{initChunk}})...)
}

// CtStateFirst yields `ct state new,untracked`: the packet begins a connection,
// or connection tracking does not know.
func CtStateFirst() Statement { return ctState("new,untracked", ctStateNew|ctStateUntracked) }

// CtStateKnown yields `ct state established,related`: connection tracking has
// seen packets of the connection in both directions.
func CtStateKnown() Statement {
	return ctState("established,related", ctStateEstablished|ctStateRelated)
}
