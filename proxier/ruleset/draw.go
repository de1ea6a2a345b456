package ruleset

import "github.com/nftproxy/nftproxy/nft"

// draw is the way in which a chain draws the index of a row.
type draw uint8

const (
	random         draw = iota // each target has one row at most
	weighted                   // random, from slots
	sourceHash                 // by a hash of the client's address, from slots
	sourcePortHash             // by a hash of the client's address and port, from slots
	randomOnce                 // random, without a retry
	weightedOnce               // weighted, without a retry
	draws
)

// String returns the infix of the names of balancers, such as `hash-`.
func (d draw) String() string {
	return [...]string{"", "weighted-", "hash-", "port-hash-", "once-", "once-weighted-"}[d]
}

// hashSeed is the seed of the hashes of clients. It must never change, so that
// all nodes and versions select the same endpoints.
const hashSeed = 0x5eed

// index yields the index of one of n rows:
//
//	numgen random mod 3
//	jhash ip saddr mod 251 seed 0x5eed
//	jhash ip saddr . th sport mod 251 seed 0x5eed
func (d draw) index(f nft.Family, n int, offset uint32) nft.Expr {
	switch d {
	case sourceHash:
		return nft.Jhash(uint32(n), hashSeed, offset, nft.Saddr(f))
	case sourcePortHash:
		return nft.Jhash(uint32(n), hashSeed, offset, nft.Saddr(f), nft.ThSport())
	}
	return nft.Random(uint32(n), offset)
}
