package rendezvous

import (
	"encoding/binary"
	"net/netip"
)

// The hash function must never change: all versions of the proxy compute the
// same tables.

// golden distributes consecutive numbers: 2^64 divided by the golden ratio.
const golden = 0x9e3779b97f4a7c15

// mix returns a hash of a number.
func mix(x uint64) uint64 {
	const factor = 0xd6e8feb86659fd93
	x = (x ^ x>>32) * factor
	x = (x ^ x>>32) * factor
	return x ^ x>>32
}

// keyOf returns a hash of an address, and of the port if withPort is set.
func keyOf(addr netip.AddrPort, withPort bool) uint64 {
	ip := addr.Addr().As16()
	key := mix(binary.BigEndian.Uint64(ip[:8]) + golden)
	key = mix(key + binary.BigEndian.Uint64(ip[8:]))
	if withPort {
		key = mix(key + uint64(addr.Port()))
	}
	return key
}
