package nft

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Generation returns the generation number of the ruleset: it grows by one with every transaction that anybody commits in this
// network namespace, and never is 0.
func (c *Conn) Generation() (uint32, error) {
	var gen uint32
	err := c.request(unix.NFT_MSG_GETGEN, 0, 0, nil, func(msg []byte) {
		attrs(msg, func(typ uint16, value []byte) {
			if typ == unix.NFTA_GEN_ID && len(value) == 4 {
				gen = binary.BigEndian.Uint32(value)
			}
		})
	})
	if err == nil && gen == 0 {
		err = errIncomplete
	}
	if err != nil {
		return 0, fmt.Errorf("read generation: %w", err)
	}
	return gen, nil
}

// NextGeneration returns the generation that follows gen: after the largest number comes 1.
func NextGeneration(gen uint32) uint32 {
	if gen+1 == 0 {
		return 1
	}
	return gen + 1
}
