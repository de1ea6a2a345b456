package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

func TestProxier(t *testing.T) {
	inConfigDir(t)
	p, ip, port := netip.MustParsePrefix, netip.MustParseAddr, netip.MustParseAddrPort
	for _, tt := range []struct {
		name, args string // args are separated by |
		want       proxier.Config
	}{
		{"defaults", "--hostname-override= Node1 ", proxier.Config{
			NodeName: "node1", SyncPeriod: 30 * time.Second, MinSyncPeriod: defaultMinSyncPeriod,
			Rules: ruleset.Config{
				MasqueradeBit:     ptr.To(14),
				DetectLocal:       ruleset.LocalDetection{Mode: ruleset.DetectLocalClusterCIDR},
				NodePortAddresses: ruleset.NodePortAddresses{Primary: true},
			},
		}},
		{"file", "--config=config.yaml", proxier.Config{
			NodeName: "node-1", NodeIPs: []netip.Addr{ip("10.0.0.5")},
			SyncPeriod: time.Minute, MinSyncPeriod: 2 * time.Second,
			Rules: ruleset.Config{
				MasqueradeBit: ptr.To(3), MasqueradeAll: true,
				DetectLocal: ruleset.LocalDetection{
					Mode:         ruleset.DetectLocalClusterCIDR,
					ClusterCIDRs: []netip.Prefix{p("10.244.0.0/16"), p("fd00:244::/32")},
				},
				NodePortAddresses: ruleset.NodePortAddresses{CIDRs: []netip.Prefix{p("10.0.0.0/8"), p("::/0")}},
			},
			OwnPorts: []netip.AddrPort{port("10.0.0.5:1"), port("10.0.0.5:10249")},
		}},
		{"flags", "--hostname-override=a|--bind-address=::|--masquerade-all|--iptables-masquerade-bit=5|" +
			"--iptables-sync-period=7s|--iptables-min-sync-period=0|--detect_local_mode=InterfaceNamePrefix|" +
			"--pod-interface-name-prefix=veth|--cluster-cidr=unused|" +
			"--nodeport-addresses=010.1.2.3/8,::ffff:1.2.3.4/128", proxier.Config{
			NodeName: "a", SyncPeriod: 7 * time.Second,
			Rules: ruleset.Config{
				MasqueradeBit: ptr.To(14), MasqueradeAll: true,
				DetectLocal: ruleset.LocalDetection{
					Mode: ruleset.DetectLocalInterfaceNamePrefix, InterfaceNamePrefix: "veth",
				},
				NodePortAddresses: ruleset.NodePortAddresses{CIDRs: []netip.Prefix{p("10.0.0.0/8"), p("1.2.3.4/32")}},
			},
		}},
		{"keywords", "--hostname-override=a|--nodeport-addresses=primary,localhost,10.0.0.0/8|" +
			"--feature-gates=KubeProxyNFTablesLocalhostNodePorts=true", proxier.Config{
			NodeName: "a", SyncPeriod: 30 * time.Second, MinSyncPeriod: defaultMinSyncPeriod,
			Rules: ruleset.Config{
				MasqueradeBit: ptr.To(14), LocalhostNodePorts: true,
				DetectLocal: ruleset.LocalDetection{Mode: ruleset.DetectLocalClusterCIDR},
				NodePortAddresses: ruleset.NodePortAddresses{
					Primary: true, CIDRs: []netip.Prefix{p("127.0.0.0/8"), p("::1/128"), p("10.0.0.0/8")},
				},
			},
		}},
		{"all", "--hostname-override=a|--nodeport-addresses=all,all", proxier.Config{
			NodeName: "a", SyncPeriod: 30 * time.Second, MinSyncPeriod: defaultMinSyncPeriod,
			Rules: ruleset.Config{
				MasqueradeBit: ptr.To(14),
				DetectLocal:   ruleset.LocalDetection{Mode: ruleset.DetectLocalClusterCIDR},
				NodePortAddresses: ruleset.NodePortAddresses{
					CIDRs: []netip.Prefix{p("0.0.0.0/0"), p("::/0"), p("0.0.0.0/0"), p("::/0")},
				},
			},
		}},
		{"bridge", "--hostname-override=a|--bind-address=fd00::1|--detect-local-mode=BridgeInterface|" +
			"--pod-bridge-interface=cbr0|--nodeport-addresses=primary", proxier.Config{
			NodeName: "a", NodeIPs: []netip.Addr{ip("fd00::1")},
			SyncPeriod: 30 * time.Second, MinSyncPeriod: defaultMinSyncPeriod,
			Rules: ruleset.Config{
				MasqueradeBit: ptr.To(14),
				DetectLocal: ruleset.LocalDetection{Mode: ruleset.DetectLocalBridgeInterface,
					BridgeInterface: "cbr0"},
				NodePortAddresses: ruleset.NodePortAddresses{Primary: true},
			},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.want.Rules.ServiceMetrics = ruleset.ServiceMetricsOff
			tt.want.Rules.Budgets = ruleset.Budgets{
				Service: ruleset.DefaultServiceRows, Namespace: ruleset.DefaultNamespaceRows,
			}
			tt.want.Rules.HashTableSize = cluster.DefaultHashTableSize
			if tt.want.OwnPorts == nil {
				tt.want.OwnPorts = []netip.AddrPort{port("0.0.0.0:10256"), port("127.0.0.1:10249")}
			}
			got, err := parse(t, strings.Split(tt.args, "|")...).Proxier()
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, tt.want)
			}
		})
	}
}

// TestServiceMetrics sets --service-metrics, which has no field of the file.
func TestServiceMetrics(t *testing.T) {
	inConfigDir(t)
	for args, want := range map[string]ruleset.ServiceMetrics{
		"--service-metrics=":                              ruleset.ServiceMetricsOff,
		"--service-metrics=annotated":                     ruleset.ServiceMetricsAnnotated,
		"--config=config.yaml --service-metrics=all -v=2": ruleset.ServiceMetricsAll,
	} {
		o := parse(t, strings.Fields(args)...)
		got, err := o.Proxier()
		metrics, warned := got.Rules.ServiceMetrics, strings.Contains(fmt.Sprint(o.Warnings()), "service-metrics")
		if err != nil || metrics != want || warned {
			t.Errorf("%s: got %q, %v, warnings %v; want %q", args, metrics, err, o.Warnings(), want)
		}
	}
	_, err := Parse([]string{"--service-metrics=some"})
	if err == nil || !strings.Contains(err.Error(), "off, annotated, all") {
		t.Errorf("unknown value: got %v", err)
	}
}

// TestExternalIPsGate sets the feature gate AllowServiceExternalIPs in a file
// and with the flag.
func TestExternalIPsGate(t *testing.T) {
	for _, tt := range []struct {
		gates  string // of the file
		flags  []string
		ignore bool
	}{
		{"{}", nil, false},
		{"{AllowServiceExternalIPs: true}", nil, false},
		{"{AllowServiceExternalIPs: false}", nil, true},
		{"", []string{"--feature-gates=AllowServiceExternalIPs=false"}, true},
		{"", nil, false},
	} {
		args := append([]string{"--hostname-override=a"}, tt.flags...)
		if tt.gates != "" {
			file := filepath.Join(t.TempDir(), "config.conf")
			write(t, file, before+"featureGates: "+tt.gates+"\n")
			args = append(args, "--config="+file)
		}
		o := parse(t, args...)
		if got, err := o.Proxier(); err != nil || got.IgnoreExternalIPs != tt.ignore {
			t.Errorf("%s %q: got %v, %v; want %v", tt.gates, tt.flags, got.IgnoreExternalIPs, err, tt.ignore)
		}
		if w := o.Warnings(); len(w) > 0 {
			t.Errorf("%s %q: got warnings %q, want none", tt.gates, tt.flags, w)
		}
	}
}

func TestNodeName(t *testing.T) {
	for _, tt := range []struct {
		override, host string
		err            error
		want, wantErr  string
	}{
		{"", " Host.Example \n", nil, "host.example", ""},
		{"Other", "host", nil, "other", ""},
		{"", " ", nil, "", "the host name is empty; set --hostname-override"},
		{"", "", errors.New("gone"), "", "get the host name: gone; set --hostname-override"},
	} {
		got, err := nodeName(tt.override, func() (string, error) { return tt.host, tt.err })
		if got != tt.want || (err == nil) != (tt.wantErr == "") || err != nil && err.Error() != tt.wantErr {
			t.Errorf("%q, %q: got %q, %v; want %q, %s", tt.override, tt.host, got, err, tt.want, tt.wantErr)
		}
	}
}

func TestApplyLogging(t *testing.T) {
	o := parse(t, "--logging-format=json", "-v=1")
	t.Cleanup(func() {
		if err := logsapi.ResetForTest(o.FeatureGate); err != nil {
			t.Error(err)
		}
	})
	if err := o.ApplyLogging(); err != nil {
		t.Fatal(err)
	}
	if err := o.ApplyLogging(); err == nil {
		t.Error("second call: got no error")
	}
	enabled := func(verbosity int) bool {
		return slog.Default().Enabled(context.Background(), slog.Level(-verbosity))
	}
	if !enabled(1) || enabled(10) {
		t.Errorf("slog: got verbosity 1 %v, 10 %v, want only 1", enabled(1), enabled(10))
	}
}
