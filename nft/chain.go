package nft

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

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
	return nameOf(uint32(h), "prerouting", "input", "forward", "output", "postrouting")
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

// AddChain adds a chain without its rules. If the chain exists, nothing
// changes.
func (b *Batch) AddChain(c *Chain) {
	b.add(kindChain, sentMessage{object: c.Name}, func(w *messageWriter) {
		if c.Hook == nil {
			return
		}
		w.CString(unix.NFTA_CHAIN_TYPE, string(c.Hook.Type))
		at := w.Nest(unix.NFTA_CHAIN_HOOK)
		w.Uint32(unix.NFTA_HOOK_HOOKNUM, uint32(c.Hook.Point))
		w.Uint32(unix.NFTA_HOOK_PRIORITY, uint32(c.Hook.Priority))
		w.Unnest(at)
		if c.Hook.Drop {
			w.Uint32(unix.NFTA_CHAIN_POLICY, policyDrop)
		}
	})
}

// FlushChain deletes all rules of a chain. The commit fails if the chain does
// not exist.
func (b *Batch) FlushChain(name string) { b.delete("flush chain", kindRule, name) }

// DeleteChain deletes a chain and its rules. The commit fails if the chain
// does not exist, or if rules or rows refer to it.
func (b *Batch) DeleteChain(name string) { b.delete("delete chain", kindChain, name) }

// policyDrop is NF_DROP of linux/netfilter.h.
const policyDrop = 0

// FindChain reads a chain of the table. It returns ok as false if the chain
// does not exist.
func (c *Conn) FindChain(t *Table, name string) (found Chain, ok bool, err error) {
	return find(c, kindChain, t, name, parseChain)
}

// Chains reads the chains of the table. It returns none if the table does not
// exist. All of them belong to one generation; the error is ErrGeneration if
// other programs keep committing. Snapshot makes several calls read one
// generation.
func (c *Conn) Chains(t *Table) ([]Chain, error) {
	return dump(c, kindChain, t, "", func(msg []byte) (Chain, bool) { return parseChain(msg), true })
}

func parseChain(msg []byte) Chain {
	c := Chain{Name: cString(attr(msg, unix.NFTA_CHAIN_NAME)), Handle: be64(attr(msg, unix.NFTA_CHAIN_HANDLE))}
	if hook := attr(msg, unix.NFTA_CHAIN_HOOK); hook != nil {
		c.Hook = &Hook{
			Type:     ChainType(cString(attr(msg, unix.NFTA_CHAIN_TYPE))),
			Point:    HookPoint(be32(attr(hook, unix.NFTA_HOOK_HOOKNUM))),
			Priority: int32(be32(attr(hook, unix.NFTA_HOOK_PRIORITY))),
			Drop:     be32(attr(msg, unix.NFTA_CHAIN_POLICY)) == policyDrop,
		}
	}
	return c
}

// OtherChain is a base chain of a table of any program.
type OtherChain struct {
	Table *Table
	Chain
}

// BaseChains reads the base chains of all tables of a family that packets
// pass, without dormant tables.
func (c *Conn) BaseChains(f Family) ([]OtherChain, error) {
	var chains []OtherChain
	_, err := c.Snapshot(func() error {
		chains = nil
		dormant := make(map[string]bool)
		err := c.request(unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP, f, nil, func(msg []byte) {
			dormant[cString(attr(msg, unix.NFTA_TABLE_NAME))] = parseTable(msg).Flags&unix.NFT_TABLE_F_DORMANT != 0
		})
		if err != nil {
			return err
		}
		return c.request(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, f, nil, func(msg []byte) {
			table := &Table{Family: f, Name: cString(attr(msg, unix.NFTA_CHAIN_TABLE))}
			if chain := parseChain(msg); chain.Hook != nil && !dormant[table.Name] {
				chains = append(chains, OtherChain{table, chain})
			}
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read base chains of family %s: %w", f, err)
	}
	return chains, nil
}
