package keep

import (
	"cmp"
	"strings"

	"github.com/nftproxy/nftproxy/nft"
)

// Difference is a difference between a table as it should be and the one in the
// kernel.
type Difference struct {
	Family nft.Family     `json:"family"` // set by Diff
	Kind   DifferenceKind `json:"kind"`
	// Object is the row, chain, set, counter or timeout in nft syntax: as it
	// should be, or as it is if it is extra.
	Object string `json:"object"`
	// Found is what a changed object is instead, if that is known.
	Found string `json:"found,omitempty"`
	// Owner is the name of the owner that demands the object, "" for an object
	// of no owner.
	Owner string `json:"servicePort,omitempty"`

	damage    Damage // if another program caused the difference
	object    object
	form      any        // of an object that differs (see wantedObject)
	chain     *nft.Chain // whose rules differ
	want, has nft.Row    // has.Set is nil if there is no such row
}

// DifferenceKind is the kind of a difference.
type DifferenceKind string

// Kinds of differences.
const (
	Missing DifferenceKind = "missing"
	Changed DifferenceKind = "changed"
	Extra   DifferenceKind = "extra"
)

// Damage is a change to our table by another program. It is an error.
type Damage struct {
	Kind DamageKind
	What string // a sentence without a period: "set service-ips was deleted"
}

// DamageKind is the kind of object that another program changed. It is a label
// of metrics.
type DamageKind string

// The kinds of damage.
const (
	DamagedTable    DamageKind = "table"    // deleted or replaced
	DamagedSet      DamageKind = "set"      // deleted or replaced
	DamagedCounter  DamageKind = "counter"  // deleted or replaced
	DamagedTimeout  DamageKind = "timeout"  // object `ct timeout` deleted, replaced or changed
	DamagedChain    DamageKind = "chain"    // base chain deleted, replaced or changed
	DamagedRule     DamageKind = "rule"     // rules added, deleted or replaced
	DamagedRows     DamageKind = "rows"     // set flushed, or rows added or deleted
	DamagedRow      DamageKind = "row"      // single rows deleted or changed, found by the scrubber
	DamagedAffinity DamageKind = "affinity" // chain of an owner changed: only Services with session affinity have any
)

// DamageKinds returns all kinds of damage.
func DamageKinds() []DamageKind {
	return []DamageKind{
		DamagedTable, DamagedSet, DamagedCounter, DamagedTimeout, DamagedChain, DamagedRule, DamagedRows, DamagedRow,
		DamagedAffinity,
	}
}

// Error describes what another program changed.
func (d *Damage) Error() string { return "another program changed the table: " + d.What }

// object is a set, a counter, an object `ct timeout` or a chain.
type object struct {
	kind objectKind
	name string
}

type objectKind uint8

const (
	kindSet objectKind = iota
	kindCounter
	kindTimeout
	kindChain
)

// String returns the object in nft syntax.
func (o object) String() string {
	return [...]string{"set ", "counter ", "ct timeout ", "chain "}[o.kind] + o.name
}

func (o object) compare(p object) int {
	return cmp.Or(cmp.Compare(o.kind, p.kind), strings.Compare(o.name, p.name))
}
