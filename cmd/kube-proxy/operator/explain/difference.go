package explain

import (
	"slices"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Difference is the first rule or row on the way of a packet that differs
// between the kernel and the table that the proxy wants.
type Difference struct {
	Chain string `json:"chain"`
	// Set and Key identify a row. They are "" for a rule.
	Set string `json:"set,omitempty"`
	Key string `json:"key,omitempty"`
	// Kernel and Desired are the rules or rows in nft syntax, "" if there is
	// none.
	Kernel  string `json:"kernel,omitempty"`
	Desired string `json:"desired,omitempty"`
	// Meaning explains the difference, in sentences without the last period.
	Meaning string `json:"meaning"`
}

// compare returns the first difference between two walks, nil if there is none.
func compare(kernel, desired []*Step) *Difference {
	for i := range max(len(kernel), len(desired)) {
		if i == len(kernel) || i == len(desired) || !kernel[i].sameRule(desired[i]) {
			return compareRules(kernel[i:], desired[i:])
		}
		d, same := compareLookups(kernel[i], desired[i])
		if !same {
			return d
		}
	}
	return nil
}

func (s *Step) sameRule(o *Step) bool { return s.Chain == o.Chain && s.Rule == o.Rule }

// compareRules returns the difference between two walks whose first rules
// differ. A rule that the other walk reaches later is not the one that differs,
// unless both do: then the order differs.
func compareRules(kernel, desired []*Step) *Difference {
	onlyKernel, onlyDesired := firstOf(kernel, desired), firstOf(desired, kernel)
	if onlyKernel == nil && onlyDesired == nil {
		onlyKernel, onlyDesired = kernel[0], desired[0]
	}
	d := &Difference{}
	if onlyDesired != nil {
		d.Chain, d.Desired = onlyDesired.Chain, onlyDesired.Rule
	}
	if onlyKernel != nil {
		d.Chain, d.Kernel = onlyKernel.Chain, onlyKernel.Rule
	}
	return d
}

// firstOf returns the first rule of a walk, nil if another walk has it too.
func firstOf(walk, other []*Step) *Step {
	if len(walk) == 0 || slices.ContainsFunc(other, walk[0].sameRule) {
		return nil
	}
	return walk[0]
}

// compareLookups returns the first difference between the rows that a rule
// found. same reports whether there is none. Packets change the clients with
// session affinity, so a difference there means nothing, and d is nil.
func compareLookups(kernel, desired *Step) (d *Difference, same bool) {
	for i := range max(len(kernel.Lookups), len(desired.Lookups)) {
		var inKernel, wanted Lookup
		if i < len(kernel.Lookups) {
			inKernel = kernel.Lookups[i]
		}
		if i < len(desired.Lookups) {
			wanted = desired.Lookups[i]
		}
		switch {
		case inKernel == wanted:
			continue
		case ruleset.IsAffinitySet(inKernel.Set), ruleset.IsAffinitySet(wanted.Set):
			return nil, false
		case inKernel.Set != wanted.Set || inKernel.Key != wanted.Key:
			return nil, false // the kernel changed during the walk
		}
		return &Difference{
			Chain: kernel.Chain, Set: wanted.Set, Key: wanted.Key, Kernel: inKernel.Row, Desired: wanted.Row,
		}, false
	}
	return nil, true
}
