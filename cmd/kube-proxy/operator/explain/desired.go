package explain

import (
	"cmp"
	"math/big"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Add adds what a running proxy knows to the result of a walk through the
// kernel's table.
func (r *Result) Add(d *Desired) {
	if strings.HasPrefix(d.ServicePort, r.ServicePort) { // the kernel's comments are cut
		r.ServicePort = d.ServicePort
	}
	r.Frontend, r.Unused, r.Notes = d.Frontend, d.Unused, append(r.Notes, d.Notes...)
	if r.Difference = compare(r.Walk, d.Result.Walk); r.Difference != nil {
		r.Difference.Meaning = meaning(d.Pending)
		r.blameDamage(d)
	}
	if d.Forwarder != nil && r.Outcomes[0].Action == Pass {
		r.Outcomes = d.Forwarder.outcomes()
	}
	for i := range r.Outcomes {
		reason := &r.Outcomes[i].Reason
		if reason.Refine(&d.Lack); reason.Code == ruleset.NoService && d.HealthCheck.Code != "" {
			*reason = d.HealthCheck
		}
	}
	r.Answer = r.answer()
}

// blameDamage replaces the reason NoService of a packet for a service port: the
// table in the kernel lacks its rows.
func (r *Result) blameDamage(d *Desired) {
	if d.Pending != "" || d.ServicePort == "" {
		return
	}
	for i := range r.Outcomes {
		if o := &r.Outcomes[i]; o.Reason.Code == ruleset.NoService {
			o.Reason = NewReason(ruleset.Damaged, ruleset.Facts{ServicePort: d.ServicePort})
		}
	}
}

// Refine makes the reason more precise, if a lack of endpoints is it.
func (r *Reason) Refine(lack *ruleset.Lack) {
	switch {
	case lack.Of == "" || r.Code != lack.Of:
	case lack.Reason == lack.Of:
		r.Text += ": " + lack.Short
	default:
		*r = Reason{lack.Reason, lack.Text}
	}
}

func meaning(pending string) string {
	if pending != "" {
		return "The proxy has not written its last changes: " + pending
	}
	return "Another program changed the table. The proxy restores single rows within minutes, everything else at once"
}

// outcomes returns the fates of a connection to the forwarder.
func (f *Forwarder) outcomes() (all []Outcome) {
	certain := big.NewRat(1, 1)
	switch f.Closed.Code {
	case "":
	case ruleset.Localhost: // another program can have the port
		return []Outcome{{Action: Pass, Probability: certain, Reason: f.Closed}}
	default:
		return []Outcome{{Action: Reject, Probability: certain, RejectWith: "TCP reset", Reason: f.Closed}}
	}
	for _, e := range f.Endpoints {
		all = append(all, Outcome{
			Action: ToEndpoint, Probability: big.NewRat(1, int64(len(f.Endpoints))), Endpoint: e, Affinity: f.Affinity,
			Masqueraded: true,
			Reason:      NewReason(ruleset.Localhost, ruleset.Facts{Masqueraded: true}),
		})
	}
	return all
}

// UsesAllEndpoints reports whether the packet may use the endpoints of all
// nodes although the policy is Local, because a pod or this node sends it.
func (r *Result) UsesAllEndpoints() bool {
	for _, s := range r.Walk {
		for _, l := range s.Lookups {
			if ruleset.LeadsToAllEndpoints(l.Set) && l.Row != "" {
				return true
			}
		}
	}
	return false
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
	inKernel, wanted := firstOf(kernel, desired), firstOf(desired, kernel)
	if inKernel.Chain == "" && wanted.Chain == "" {
		inKernel, wanted = *kernel[0], *desired[0]
	}
	return &Difference{Chain: cmp.Or(inKernel.Chain, wanted.Chain), Kernel: inKernel.Rule, Desired: wanted.Rule}
}

// firstOf returns the first rule of a walk, or a zero one if another walk has
// it too.
func firstOf(walk, other []*Step) (first Step) {
	if len(walk) > 0 && !slices.ContainsFunc(other, walk[0].sameRule) {
		first = *walk[0]
	}
	return first
}

// compareLookups returns the first difference between the rows that a rule
// found. same reports whether there is none. Packets change the clients with
// session affinity, so a difference there means nothing, and d is nil.
func compareLookups(kernel, desired *Step) (d *Difference, same bool) {
	for i := range min(len(kernel.Lookups), len(desired.Lookups)) {
		inKernel, wanted := kernel.Lookups[i], desired.Lookups[i]
		switch {
		case inKernel == wanted:
			continue
		case ruleset.IsAffinitySet(wanted.Set):
			return nil, false
		case inKernel.Set != wanted.Set || inKernel.Key != wanted.Key:
			return nil, false // the kernel changed during the walk
		}
		return &Difference{
			Chain: kernel.Chain, Set: wanted.Set, Key: wanted.Key, Kernel: inKernel.Row, Desired: wanted.Row,
		}, false
	}
	return nil, len(kernel.Lookups) == len(desired.Lookups)
}
