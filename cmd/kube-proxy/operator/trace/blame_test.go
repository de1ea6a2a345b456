package trace

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// A cause counts only where it can lose packets, and the route before others.
func TestBlame(t *testing.T) {
	all := func() evidence {
		return evidence{
			route: ruleset.Reason{Code: ruleset.NoRoute, Text: "no route"}, full: true, legacy: true, ipsec: true,
			endpoints: []netip.AddrPort{netip.MustParseAddrPort("10.244.1.2:80")},
		}
	}
	type stages [5]ruleset.Code // by stage
	for name, tt := range map[string]struct {
		change func(e *evidence)
		want   stages
	}{
		"all": {func(*evidence) {}, stages{
			beforeRules: ruleset.ConntrackFull, beforeRouting: ruleset.NoRoute, atRouting: ruleset.NoRoute,
			afterRouting: ruleset.ConntrackFull,
		}},
		"a route": {func(e *evidence) { e.route = ruleset.Reason{} }, stages{
			beforeRules: ruleset.ConntrackFull, beforeRouting: ruleset.ConntrackFull,
			atRouting: ruleset.NotReported, afterRouting: ruleset.ConntrackFull,
		}},
		"a route and space": {func(e *evidence) { e.route, e.full = ruleset.Reason{}, false }, stages{
			beforeRules: ruleset.LegacyRules, beforeRouting: ruleset.LegacyRules, atRouting: ruleset.NotReported,
			afterRouting: ruleset.LegacyRules,
		}},
		"IPsec only": {func(e *evidence) { *e = evidence{ipsec: true} }, stages{
			beforeRules: ruleset.NotReported, beforeRouting: ruleset.NotReported, atRouting: ruleset.NotReported,
			afterRouting: ruleset.IPsec,
		}},
	} {
		e := all()
		tt.change(&e)
		for lost := beforeRules; lost <= afterRouting; lost++ {
			if got := e.blame(lost); got.Code != tt.want[lost] || got.Text == "" {
				t.Errorf("%s, stage %d: got %+v, want %s", name, lost, got, tt.want[lost])
			}
		}
	}
}
