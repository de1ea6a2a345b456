package keep

import (
	"cmp"
	"errors"
	"time"
)

// Outage is damage of the table that is not repaired at once, or that another
// program does again and again.
type Outage struct {
	// What is the last damage that was found.
	What string `json:"what"`
	// Since is the time at which damage was found that is not repaired. It is
	// zero if all damage is repaired, but another program damaged the table
	// several times within seconds.
	Since time.Time `json:"since,omitzero"`
}

// outage tracks damage between the Checks of a Keeper.
type outage struct {
	what  string
	since time.Time // zero unless damage is not repaired
	// found is Keeper.Damaged, repairs the number of repairs of the structure,
	// and of vital sets.
	found   bool
	repairs int
}

// update records the outcome of a Check. Damage lasts until a verification
// finds none: a repair may have failed to keep up with another program.
func (o *outage) update(k *Keeper, err error) {
	d, found := errors.AsType[*Damage](err)
	if found {
		o.what = d.Error()
	}
	switch {
	case found || k.repairs.isGone || k.state.damaged != nil ||
		k.link.doubt != "" && k.link.cause == RewriteDamage:
		o.since = cmp.Or(o.since, time.Now())
	case k.link.doubt == "" && k.state.isVerified():
		o.since = time.Time{}
	}
	repairs := k.repairs.vital
	for _, kind := range []DamageKind{DamagedTable, DamagedSet, DamagedChain, DamagedRule} {
		repairs += k.repairs.count[kind]
	}
	// While a repair has to wait, nobody knows more.
	waits := o.found && !k.state.isVerified() && k.repairs.wait(time.Now(), k.limits) > 0
	o.found, o.repairs = !o.since.IsZero() || repairs != o.repairs || waits, repairs
}

// present returns the outage at a time, nil if there is none.
func (o *outage) present(r *repairs, now time.Time) *Outage {
	if o.since.IsZero() && !(r.again && now.Sub(r.last) < calmTime+r.pause) {
		return nil
	}
	return &Outage{What: o.what, Since: o.since}
}
