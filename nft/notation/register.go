package notation

import "golang.org/x/sys/unix"

// The kernel has 64 bytes of registers, which it numbers twice: in units of
// 16 bytes (NFT_REG_1 to NFT_REG_4) and of 4 bytes (NFT_REG32_00 to
// NFT_REG32_15). Both numberings begin at Reg1. The kernel lists a register
// with its number in units of 16 bytes, if it has one.
const (
	RegVerdict = unix.NFT_REG_VERDICT
	Reg1       = unix.NFT_REG_1
)

// Register returns the register at an offset from Reg1, a multiple of 4
// bytes.
func Register(offset int) uint32 {
	if offset%unix.NFT_REG_SIZE == 0 {
		return Reg1 + uint32(offset/unix.NFT_REG_SIZE)
	}
	return unix.NFT_REG32_00 + uint32(offset/unix.NFT_REG32_SIZE)
}

// RegisterOffset returns the offset of a register from Reg1, -1 for the
// verdict.
func RegisterOffset(register uint32) int {
	switch {
	case register >= unix.NFT_REG32_00:
		return int(register-unix.NFT_REG32_00) * unix.NFT_REG32_SIZE
	case register >= Reg1:
		return int(register-Reg1) * unix.NFT_REG_SIZE
	}
	return -1
}
