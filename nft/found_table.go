package nft

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// FoundTable is a table in the kernel.
type FoundTable struct {
	// Handle is the number of the table. A table that is deleted and added
	// again has another handle.
	Handle uint64
	// Flags are the flags of the table (NFT_TABLE_F_*).
	Flags uint32
}

// FindTable reads the table with the family and name of t. It returns ok as
// false if the table does not exist.
func (c *Conn) FindTable(t *Table) (found FoundTable, ok bool, err error) {
	return find(c, kindTable, t, "", parseTable)
}

func parseTable(msg []byte) FoundTable {
	return FoundTable{Handle: be64(attr(msg, nftaTableHandle)), Flags: be32(attr(msg, unix.NFTA_TABLE_FLAGS))}
}

// FindCounter reads a counter of the table. It returns ok as false if the
// counter does not exist.
func (c *Conn) FindCounter(t *Table, name string) (found Counter, ok bool, err error) {
	return find(c, kindCounter, t, name, parseCounter)
}

// Counters reads the counters of the table. It returns none if the table does
// not exist. See Chains for ErrGeneration.
func (c *Conn) Counters(t *Table) ([]Counter, error) {
	return dump(c, kindCounter, t, "", func(msg []byte) (Counter, bool) {
		return parseCounter(msg), be32(attr(msg, unix.NFTA_OBJ_TYPE)) == unix.NFT_OBJECT_COUNTER
	})
}

func parseCounter(msg []byte) Counter {
	data := attr(msg, unix.NFTA_OBJ_DATA)
	return Counter{
		Name: cString(attr(msg, unix.NFTA_OBJ_NAME)), Handle: be64(attr(msg, nftaObjHandle)),
		Packets: be64(attr(data, unix.NFTA_COUNTER_PACKETS)),
	}
}

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
