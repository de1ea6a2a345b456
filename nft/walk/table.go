package walk

import (
	"fmt"

	"github.com/nftproxy/nftproxy/nft"
)

// Kernel is a table of any program in the kernel.
type Kernel struct {
	Conn  *nft.Conn
	Table *nft.Table
}

// Rules implements Table.
func (k Kernel) Rules(chain string) ([]nft.Rule, error) {
	return k.Conn.Rules(k.Table, chain)
}

// Set implements Table.
func (k Kernel) Set(name string) (*nft.Set, error) {
	set, err := k.Conn.FindSet(k.Table, name)
	if err == nil && set == nil {
		err = fmt.Errorf("%s has no set %s", k.Table, name)
	}
	return set, err
}

// Row implements Table.
func (k Kernel) Row(set *nft.Set, key nft.Tuple) (nft.Row, error) {
	found, err := k.Conn.FindRows(k.Table, []nft.Row{{Set: set, Key: key}})
	if err != nil {
		return nft.Row{}, err
	}
	return found[0], nil
}

// cache is a table that reads each chain and each set once.
type cache struct {
	Table
	chains map[string][]nft.Rule
	sets   map[string]*nft.Set
}

// Cache returns a table that reads each chain and each set once.
func Cache(t Table) Table {
	return &cache{t, make(map[string][]nft.Rule), make(map[string]*nft.Set)}
}

// Rules implements Table.
func (c *cache) Rules(chain string) ([]nft.Rule, error) {
	return once(c.chains, chain, c.Table.Rules)
}

// Set implements Table.
func (c *cache) Set(name string) (*nft.Set, error) { return once(c.sets, name, c.Table.Set) }

// once returns the value of a map, which read provides when it is first needed.
func once[V any](values map[string]V, name string, read func(string) (V, error)) (V, error) {
	if v, ok := values[name]; ok {
		return v, nil
	}
	v, err := read(name)
	if err == nil {
		values[name] = v
	}
	return v, err
}
