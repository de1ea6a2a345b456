package nft

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/notation"
)

// Table describes a table and its program: counters, timeouts of connection
// tracking, sets, chains and rules. The rows of its sets are not part of it.
type Table struct {
	Family     Family
	Name       string
	Comment    string
	Counters   []*Counter
	CtTimeouts []*CtTimeout
	Sets       []*Set
	Chains     []*Chain
	// Owned makes the table belong to the Conn that adds it (Linux 5.12). The
	// kernel deletes the table when the Conn is closed, also if the process is
	// killed. Other programs cannot change the table.
	Owned bool
}

// nftTableOwner is NFT_TABLE_F_OWNER of linux/netfilter/nf_tables.h.
const nftTableOwner = 2

// String returns the table as nft writes it, such as `table ip kube-proxy`.
func (t *Table) String() string { return "table " + t.Family.String() + " " + t.Name }

// Chain describes a chain and its rules, or a chain in the kernel, without its
// rules. A chain with a Hook is a base chain, which packets enter from the
// network stack.
type Chain struct {
	Name  string
	Hook  *Hook
	Rules []Rule
	// Handle is the number of the chain in the kernel, which never assigns it
	// twice within a table. It is 0 for a chain that was not found there.
	Handle uint64
}

// Hook describes when packets enter a base chain.
type Hook struct {
	Type     ChainType
	Point    HookPoint
	Priority int32
	// Drop is the policy: packets that reach the end of the chain are dropped,
	// or accepted.
	Drop bool
}

// ChainType is the type of a base chain.
type ChainType string

// Types of base chains.
const (
	ChainTypeFilter ChainType = "filter"
	ChainTypeNAT    ChainType = "nat"
)

// HookPoint is a point on the path of a packet through the network stack. Its
// value is the kernel's NF_INET_* number.
type HookPoint uint32

// Hook points.
const (
	Prerouting  HookPoint = unix.NF_INET_PRE_ROUTING
	Input       HookPoint = unix.NF_INET_LOCAL_IN
	Forward     HookPoint = unix.NF_INET_FORWARD
	Output      HookPoint = unix.NF_INET_LOCAL_OUT
	Postrouting HookPoint = unix.NF_INET_POST_ROUTING
)

// String returns the hook point as nft writes it.
func (h HookPoint) String() string {
	return notation.NameOf(uint32(h), "prerouting", "input", "forward", "output", "postrouting")
}

// Priorities of base chains that nft has names for. Chains with lower
// priorities see packets first.
const (
	PriorityDstNAT int32 = -100
	PrioritySrcNAT int32 = 100
)

// Equal reports whether two chains have the same name, hook and rules.
func (c *Chain) Equal(o *Chain) bool {
	return c.Name == o.Name && c.Hook.Equal(o.Hook) && slices.EqualFunc(c.Rules, o.Rules, Rule.Equal)
}

// Equal reports whether two hooks are equal or both nil.
func (h *Hook) Equal(o *Hook) bool { return h == o || (h != nil && o != nil && *h == *o) }

// policyDrop and policyAccept are NF_DROP and NF_ACCEPT of linux/netfilter.h.
const (
	policyDrop   = 0
	policyAccept = 1
)
