package cluster

import (
	"fmt"
	"slices"
)

// Balance is the way in which a Service selects an endpoint for a new
// connection.
type Balance uint8

// The ways to select an endpoint. The hashes need no state: a client has the
// same endpoint on all nodes that use the same endpoints.
const (
	BalanceRandom         Balance = iota
	BalanceSourceHash             // by the address of the client
	BalanceSourcePortHash         // by the address and port of the client
)

var balanceNames = []string{"random", "source-hash", "source-port-hash"}

// String returns the name of b in annotations: random, source-hash or
// source-port-hash.
func (b Balance) String() string { return balanceNames[b] }

// MarshalText implements encoding.TextMarshaler with String.
func (b Balance) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *Balance) UnmarshalText(text []byte) error {
	i := slices.Index(balanceNames, string(text))
	if i < 0 {
		return fmt.Errorf("%.60q is neither random, source-hash nor source-port-hash", text)
	}
	*b = Balance(i)
	return nil
}

// Limits of the number of rows of a hash table, and its default: a prime number
// that is large enough for 25 endpoints. Each endpoint should have ten rows.
const (
	MinHashTableSize     = 16
	MaxHashTableSize     = 65536
	DefaultHashTableSize = 251
)

// Weight is the weight of an endpoint minus one, so its zero value is the
// default weight.
type Weight int8

// MaxWeight is the highest weight of an endpoint. The lowest is 0: the endpoint
// gets no new connections.
const MaxWeight = 100

// WeightOf returns the Weight for a number from 0 to MaxWeight.
func WeightOf(n int) Weight { return Weight(n - 1) }

// Int returns the weight: 0 to MaxWeight.
func (w Weight) Int() int { return int(w) + 1 }
