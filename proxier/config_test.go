package proxier

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

func TestConfigValidate(t *testing.T) {
	bit := 32
	for _, tt := range []struct {
		config Config
		want   string
	}{
		{Config{NodeName: "n"}, ""},
		{Config{}, "nodeName: must not be empty"},
		{Config{NodeName: "n", Rules: ruleset.Config{MasqueradeBit: &bit}},
			"masqueradeBit: 32 is not in the range from 0 to 31"},
		{Config{NodeName: "n", SyncPeriod: -1}, "syncPeriod: -1ns is less than 0\n" +
			"minSyncPeriod: 0s is not in the range from 0 to syncPeriod (-1ns)"},
		{Config{NodeName: "n", NodeIPs: []netip.Addr{{}}}, "nodeIPs[0]: invalid IP is not the address of a node"},
	} {
		got := ""
		if err := tt.config.validate(); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestNoLoopback(t *testing.T) {
	localhost := ruleset.NodePortAddresses{Primary: true, CIDRs: tabletest.Prefixes("127.0.0.0/8", "::1/128")}
	all := ruleset.NodePortAddresses{CIDRs: tabletest.Prefixes("0.0.0.0/0", "::/0")}
	for _, tt := range []struct {
		config ruleset.Config
		want   bool
	}{
		{ruleset.Config{}, false},
		{ruleset.Config{LocalhostNodePorts: true}, false},
		{ruleset.Config{NodePortAddresses: all}, false},
		{ruleset.Config{NodePortAddresses: localhost}, true},
		{ruleset.Config{NodePortAddresses: localhost, LocalhostNodePorts: true}, false},
	} {
		config := Config{Rules: tt.config}
		if got := config.noLoopback(); got != tt.want {
			t.Errorf("%+v: got %v, want %v", tt.config.NodePortAddresses, got, tt.want)
		}
	}
}
