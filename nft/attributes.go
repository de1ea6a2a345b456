package nft

// Numbers of the kernel's headers that golang.org/x/sys/unix does not have, with the Linux version that they came with.

// Attributes of nf_tables.h.
const (
	nftaTableHandle   = 4  // 4.17
	nftaTableUserdata = 6  // 5.10
	nftaChainUserdata = 12 // 5.10
	nftaSetHandle     = 16 // 4.17
	nftaSetCount      = 20 // 6.15
	nftaSetDescConcat = 2  // 5.6
	nftaSetFieldLen   = 1  // 5.6
	nftaElemKeyEnd    = 10 // 5.6
)

// nftSetConcat is NFT_SET_CONCAT of nf_tables.h: a set whose key has several fields, of which some are ranges (5.6).
const nftSetConcat = 0x80

// ipsDstNAT is IPS_DST_NAT of nf_conntrack_common.h.
const ipsDstNAT = 1 << 5
