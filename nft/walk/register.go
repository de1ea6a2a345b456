package walk

import (
	"fmt"
	"math/big"

	"github.com/google/nftables/expr"
	"github.com/nftproxy/nftproxy/nft/notation"
)

// value is a value that an expression loads, or the reason why it is not known.
type value struct {
	bytes   []byte
	unknown error
}

func known(b []byte) value { return value{bytes: b} }

func unknown(format string, args ...any) value { return value{unknown: fmt.Errorf(format, args...)} }

// draw is the reason why a slot is not known: the kernel draws a number from
// offset to offset+mod-1.
type draw struct {
	slot        int
	mod, offset uint32
}

func (d draw) Error() string { return fmt.Sprintf("a random number of %d is unknown", d.mod) }

// chance returns the probability that the number equals v.
func (d draw) chance(v uint32) *big.Rat {
	if v < d.offset || v-d.offset >= d.mod {
		return new(big.Rat)
	}
	return big.NewRat(1, int64(d.mod))
}

// number returns the number of a numgen expression. One that is drawn in turn
// is as likely as a random one.
func number(e *expr.Numgen) value {
	if e.Modulus <= 1 {
		return known(hostBytes(e.Offset))
	}
	return drawn(e.Register, e.Modulus, e.Offset)
}

// drawn returns a random number that is loaded into a register.
func drawn(register, mod, offset uint32) value {
	slot, _, err := slotsOf(register, slotBytes)
	if err != nil {
		return value{unknown: err}
	}
	return value{unknown: draw{slot, mod, offset}}
}

// registerBytes is the size of the registers of the kernel, and slotBytes the
// size of the smallest register.
const (
	registerBytes = 64
	slotBytes     = 4
)

// registers are the registers of the kernel. unknown are the reasons why slots
// are not known, nil for known ones.
type registers struct {
	data    [registerBytes]byte
	unknown [registerBytes / slotBytes]error
}

// slotsOf returns the first slot of a register and the one after the last that
// a value of this size takes.
func slotsOf(number uint32, size int) (first, end int, err error) {
	at := notation.RegisterOffset(number)
	first, end = at/slotBytes, (at+size+slotBytes-1)/slotBytes
	if at < 0 || size < 0 || end > registerBytes/slotBytes {
		return 0, 0, fmt.Errorf("register %d with %d bytes is invalid", number, size)
	}
	return first, end, nil
}

// store writes a value of this size into a register, and zeros up to the end of
// its last slot.
func (r *registers) store(number uint32, size int, v value) {
	first, end, err := slotsOf(number, size)
	if err != nil {
		r.forget(err)
		return
	}
	clear(r.data[first*slotBytes : end*slotBytes])
	copy(r.data[first*slotBytes:end*slotBytes], v.bytes)
	for i := first; i < end; i++ {
		r.unknown[i] = v.unknown
	}
}

// forget makes the values of all registers unknown.
func (r *registers) forget(reason error) {
	for i := range r.unknown {
		r.unknown[i] = reason
	}
}

// value returns the value of a register.
func (r *registers) value(number uint32, size int) value {
	first, end, err := slotsOf(number, size)
	if err != nil {
		return value{unknown: err}
	}
	for _, reason := range r.unknown[first:end] {
		if reason != nil {
			return value{unknown: reason}
		}
	}
	return known(r.data[first*slotBytes : first*slotBytes+size])
}

// set writes a number into a slot.
func (r *registers) set(slot int, number uint32) {
	copy(r.data[slot*slotBytes:], hostBytes(number))
	r.unknown[slot] = nil
}
