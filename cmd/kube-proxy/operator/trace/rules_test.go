package trace

import (
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/script"
)

// The tables of selections are in testdata/tables.txtar.
func TestTables(t *testing.T) {
	selections := map[string]Selection{
		"one frontend": {Frontends: []Frontend{
			{netip.MustParseAddrPort("10.96.0.10:80"), unix.IPPROTO_TCP},
			{netip.MustParseAddrPort("10.96.0.10:80"), unix.IPPROTO_UDP},
			{netip.MustParseAddrPort("10.96.0.10:80"), unix.IPPROTO_SCTP},
		}},
		"NodePort and ranges, UDP from outside": {
			Frontends: []Frontend{{netip.MustParseAddrPort("[::]:30053"), unix.IPPROTO_UDP}},
			Ranges:    []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")},
			Protocol:  unix.IPPROTO_UDP,
			Source: Source{NotNode: true, Except: []netip.Prefix{
				netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32"),
			}},
		},
		"an endpoint on this node": {
			Frontends: []Frontend{{netip.MustParseAddrPort("10.96.0.10:80"), unix.IPPROTO_TCP}},
			Endpoints: map[Frontend]string{
				{netip.MustParseAddrPort("10.244.1.5:8080"), unix.IPPROTO_TCP}:    "shop/web",
				{netip.MustParseAddrPort("[fd00:244::5]:8080"), unix.IPPROTO_TCP}: "shop/web",
				{netip.MustParseAddrPort("10.244.1.5:8080"), unix.IPPROTO_UDP}:    "shop/web",
			},
			Protocol: unix.IPPROTO_TCP,
		},
		"TCP from this node": {
			Frontends: []Frontend{{netip.MustParseAddrPort("192.0.2.10:443"), unix.IPPROTO_TCP}},
			Protocol:  unix.IPPROTO_TCP,
			Source:    Source{NotOthers: true, Within: []netip.Prefix{netip.MustParsePrefix("172.30.0.11/32")}},
		},
	}
	script.Sections(t, "testdata/tables.txtar", func(name, _ string) string {
		var got strings.Builder
		for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
			selection := selections[name]
			if selection.concerns(f) {
				table, rows := tableOf(f, &selection, tableName(1))
				if err := table.Fprint(&got, rows); err != nil {
					t.Fatal(err)
				}
			}
		}
		return got.String()
	})
}
