package explain

import (
	"fmt"
	"math/big"
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
	if len(d.Outcomes) > 0 && !sameFates(r.Outcomes, d.Outcomes) {
		r.Difference = &Difference{(&Result{Outcomes: d.Outcomes}).answer(), meaning(d.Pending)}
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
	r.conclude()
}

// blameDamage replaces the reason NoService of a packet for a service port: the
// table in the kernel lacks its rows.
func (r *Result) blameDamage(d *Desired) {
	if d.Pending != "" || d.ServicePort == "" {
		return
	}
	for i := range r.Outcomes {
		if o := &r.Outcomes[i]; o.Reason.Code == ruleset.NoService {
			o.Reason = ruleset.Damaged.Reason(ruleset.Facts{ServicePort: d.ServicePort})
		}
	}
}

func meaning(pending string) string {
	if pending != "" {
		return "The proxy has not written its last changes: " + pending
	}
	return "Another program changed the table, and nftproxy doctor names the rows. The proxy restores single rows " +
		"within minutes, everything else at once"
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
			Reason:      ruleset.Localhost.Reason(ruleset.Facts{Masqueraded: true}),
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

// sameFates reports whether two walks end in the same way. Packets change the
// clients with session affinity, so a difference there means nothing.
func sameFates(kernel, desired []Outcome) bool {
	fates := make(map[string]int)
	for i, outcomes := range [][]Outcome{kernel, desired} {
		for _, o := range outcomes {
			if o.Affinity == "known" {
				return true
			}
			fate := fmt.Sprint(o.Action, o.Probability, o.Endpoint, o.Masqueraded, o.RejectWith, o.Reason.Code,
				o.Affinity)
			fates[fate] += 1 - 2*i
		}
	}
	for _, n := range fates {
		if n != 0 {
			return false
		}
	}
	return true
}
