package explain

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// registerBytes is the size of the registers of the kernel, and slotBytes that
// of the smallest register.
const (
	registerBytes = 64
	slotBytes     = 4
)

// drawn is a random number from offset to offset+mod-1 that the kernel draws.
// The zero value stands for a known value.
type drawn struct{ mod, offset uint32 }

// registers are the registers of the kernel. A slot can hold a random number.
type registers struct {
	data   [registerBytes]byte
	random [registerBytes / slotBytes]drawn
}

// registerAt returns the offset of a register, which the kernel numbers in
// units of 16 bytes (NFT_REG_1 to NFT_REG_4) and of 4 bytes (from
// NFT_REG32_00).
func registerAt(number uint32, size int) (int, error) {
	at := -1
	switch {
	case number >= unix.NFT_REG_1 && number <= unix.NFT_REG_4:
		at = int(number-unix.NFT_REG_1) * 16
	case number >= unix.NFT_REG32_00:
		at = int(number-unix.NFT_REG32_00) * slotBytes
	}
	if at < 0 || size < 0 || at+size > registerBytes {
		return 0, fmt.Errorf("register %d with %d bytes is invalid", number, size)
	}
	return at, nil
}

// store writes a value into a register, and zeros up to the end of its last
// slot.
func (r *registers) store(number uint32, value []byte) error {
	at, err := registerAt(number, slots(len(value))*slotBytes)
	if err != nil {
		return err
	}
	copy(r.data[at:], make([]byte, slots(len(value))*slotBytes))
	copy(r.data[at:], value)
	for i := range slots(len(value)) {
		r.random[at/slotBytes+i] = drawn{}
	}
	return nil
}

// storeRandom writes a random number into a register.
func (r *registers) storeRandom(number uint32, n drawn) error {
	if err := r.store(number, make([]byte, slotBytes)); err != nil {
		return err
	}
	at, err := registerAt(number, slotBytes)
	r.random[at/slotBytes] = n
	return err
}

// load returns a value of known bytes.
func (r *registers) load(number uint32, size int) ([]byte, error) {
	at, err := registerAt(number, size)
	if err != nil {
		return nil, err
	}
	if slot, n := r.drawnAt(at, size); n.mod != 0 {
		return nil, fmt.Errorf("register slot %d holds a random number", slot)
	}
	return r.data[at : at+size], nil
}

// drawnIn returns the first slot of a value that holds a random number, and the
// number. Its mod is 0 if there is none.
func (r *registers) drawnIn(number uint32, size int) (slot int, n drawn, err error) {
	at, err := registerAt(number, size)
	if err != nil {
		return 0, drawn{}, err
	}
	slot, n = r.drawnAt(at, size)
	return slot, n, nil
}

func (r *registers) drawnAt(at, size int) (slot int, n drawn) {
	for i := at / slotBytes; i < at/slotBytes+slots(size); i++ {
		if r.random[i].mod != 0 {
			return i, r.random[i]
		}
	}
	return 0, drawn{}
}

// slots returns the number of slots that a value takes.
func slots(size int) int { return (size + slotBytes - 1) / slotBytes }
