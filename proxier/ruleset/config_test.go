package ruleset

import (
	"net/netip"
	"testing"
)

func TestConfigValidate(t *testing.T) {
	bit := 32
	for _, tt := range []struct {
		config Config
		want   string
	}{
		{Config{}, ""},
		{Config{MasqueradeBit: &bit}, "masqueradeBit: 32 is not in the range from 0 to 31"},
		{Config{DetectLocal: LocalDetection{Mode: "Magic"}}, `detectLocalMode: "Magic" is not supported: ` +
			`supported are ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix`},
		{Config{DetectLocal: LocalDetection{Mode: DetectLocalBridgeInterface}},
			`detectLocal.bridgeInterface: "" is not the name of an interface`},
		{Config{DetectLocal: LocalDetection{
			Mode:         DetectLocalClusterCIDR,
			ClusterCIDRs: []netip.Prefix{prefix("10.0.0.0/8"), prefix("11.0.0.0/8")},
		}}, "clusterCIDR: 10.0.0.0/8 and 11.0.0.0/8 are of the same family, only one a family is supported"},
	} {
		got := ""
		if err := tt.config.Validate(); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}
