package table

// damage is a change to our table by another program. It is an error.
type damage struct {
	kind DamageKind
	what string // a sentence without a period: "set service-ips was deleted"
}

// DamageKind is the kind of object that another program changed. It is a label
// of metrics.
type DamageKind string

// The kinds of damage.
const (
	damagedTable    DamageKind = "table"    // deleted or replaced
	damagedSet      DamageKind = "set"      // deleted or replaced
	damagedCounter  DamageKind = "counter"  // deleted or replaced
	damagedChain    DamageKind = "chain"    // base chain deleted, replaced or changed
	damagedRule     DamageKind = "rule"     // rules added, deleted or replaced
	damagedRows     DamageKind = "rows"     // set flushed, or rows added or deleted
	damagedRow      DamageKind = "row"      // single rows deleted or changed, found by the scrubber
	damagedAffinity DamageKind = "affinity" // chain of a service port with session affinity changed
)

// DamageKinds returns all kinds of damage.
func DamageKinds() []DamageKind {
	return []DamageKind{
		damagedTable, damagedSet, damagedCounter, damagedChain, damagedRule, damagedRows, damagedRow, damagedAffinity,
	}
}

// Error describes what another program changed.
func (d *damage) Error() string { return "another program changed the table: " + d.what }
