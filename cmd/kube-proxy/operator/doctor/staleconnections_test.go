package doctor_test

import (
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/doctor"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// The check finds what prevents the reset of connections to endpoints that are
// gone, if the proxy resets them.
func TestStaleConnections(t *testing.T) {
	const loose, forward = "sysctl -qw net.netfilter.nf_conntrack_tcp_loose=", "nft add table inet fw\n" +
		"nft add chain inet fw forward '{ type filter hook forward priority 0; policy accept; }'\n" +
		"nft add rule inet fw forward "
	for name, test := range map[string]struct {
		commands string
		without  bool // the proxy runs without the option
		want     expectation
	}{
		"healthy":   {want: expectation{result: doctor.OK}},
		"no option": {without: true, want: expectation{result: doctor.Skipped, contains: "without --reset"}},
		"not loose": {loose + "0", false, expectation{"", doctor.Warn, "loose is 0"}},
		"strict new": {
			forward + `ct state new tcp flags \& syn == 0 drop`, false, expectation{"", doctor.Info, "without SYN"},
		},
		"invalid": {forward + "ct state invalid drop", false, expectation{"", doctor.Info, "an invalid packet of"}},
		"all":     {forward + "drop", false, expectation{"", doctor.OK, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			healthy(t, tabletest.Rules())
			sh(t, test.commands)
			test.want.name = "stale-connections"
			proxy := &answer.ProxyStatus{Status: proxier.Status{ResetStaleConnections: !test.without}}
			test.want.check(t, doctor.Config{Proxy: proxy})
		})
	}
}
