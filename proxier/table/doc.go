// Package table keeps the nftables tables "ip kube-proxy" and "ip6 kube-proxy"
// in the kernel equal to the state of a cluster.
//
// A Table is the cluster.Sink of one address family. It has three kinds of
// state:
//
//	desired    the state that the source passed: Services, endpoints and this node
//	committed  what the kernel has, as of the last commit that succeeded
//	observed   what was found out about changes by other programs
//
// It also has the ids of session affinity, the service ports that were refused,
// and the chains and sets that are no longer used.
//
// Sync plans the service ports that changed, and commits the difference between
// their committed and their new rows in one transaction. If the kernel may not
// have what was committed, for example after a lost answer, Sync writes
// everything in one transaction, while packets continue to use the old rows.
// Check verifies the table after commits of other programs, and repairs it.
//
// Package ruleset computes the rows and chains, and package nft encodes the
// transactions. The package does not clean connection tracking: an Observer
// receives the changes that were committed.
package table
