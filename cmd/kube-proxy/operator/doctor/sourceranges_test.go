package doctor_test

import (
	"context"
	"errors"
	"iter"
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/doctor"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// Source ranges of one family do not restrict the other one.
func TestSourceRanges(t *testing.T) {
	const v4, v6, range4, range6 = "192.0.2.10", "2001:db8::10", "198.51.100.0/24", "2001:db8:51::/64"
	load := func(name string, lbIPs []string, ranges ...string) *table.ServiceView {
		s := &table.ServiceView{Restricted: true, SourceRanges: tabletest.Prefixes(ranges...)}
		s.Namespace, s.Name = "default", name
		frontends := []table.FrontendView{
			{Family: nft.IPv6, Kind: ruleset.ClusterIP, Address: netip.MustParseAddr("fd00:96::1")},
		}
		for _, ip := range lbIPs {
			f := table.FrontendView{Family: nft.IPv4, Kind: ruleset.LoadBalancerIP, Address: netip.MustParseAddr(ip)}
			if f.Address.Is6() {
				f.Family = nft.IPv6
			}
			frontends = append(frontends, f)
		}
		s.Ports = []table.PortView{{Frontends: frontends}, {Frontends: frontends}}
		return s
	}
	both := []string{v4, v6}
	tests := []struct {
		name     string
		service  *table.ServiceView
		err      error
		result   doctor.Result
		contains string
	}{
		{"IPv4 range", load("web", both, range4), nil, doctor.Warn, "\ndefault/web: " + v6},
		{"IPv6 range", load("web", both, range6), nil, doctor.Warn, "\ndefault/web: " + v4},
		{"both ranges", load("web", both, range4, range6), nil, doctor.OK, ""},
		{"no valid range", load("web", both), nil, doctor.OK, ""},
		{"one LoadBalancer IP", load("web", []string{v4}, range4), nil, doctor.OK, ""},
		{"no answer", nil, errors.New("busy"), doctor.Skipped, "busy"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			services := func(context.Context) iter.Seq2[*table.ServiceView, error] {
				return func(yield func(*table.ServiceView, error) bool) { yield(test.service, test.err) }
			}
			expectation{"source-ranges", test.result, test.contains}.check(t, doctor.Config{
				Proxy: &answer.ProxyStatus{}, Services: services,
			})
		})
	}
}
