package config

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func parse(t *testing.T, args ...string) *Options {
	t.Helper()
	o, err := Parse(args)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return o
}

// Every flag of kube-proxy v1.36.3 is there, with its shorthand, type, default, and value when it stands alone.
func TestFlagsAreThoseOfKubeProxy(t *testing.T) {
	data, err := os.ReadFile("testdata/kube-proxy-v1.36.3-flags.tsv")
	if err != nil {
		t.Fatal(err)
	}
	differ := map[string]string{"iptables-min-sync-period": `"` + DefaultMinSyncPeriod.String() + `"`} // our default, on purpose
	want := []string{"manifests\t\tstring\t\"\"\t\"\"\tfalse"}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if d, ok := differ[words[0]]; ok {
			words[3] = d
		}
		want = append(want, strings.Join(words, "\t"))
	}
	slices.Sort(want)
	var got []string
	parse(t).cmd.all.VisitAll(func(f *pflag.Flag) {
		got = append(got, fmt.Sprintf("%s\t%s\t%s\t%q\t%q\t%v", f.Name, f.Shorthand, f.Value.Type(), f.DefValue, f.NoOptDefVal, f.Hidden))
	})
	slices.Sort(got)
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("missing: %s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("not in kube-proxy: %s", line)
		}
	}
	if len(want) < 60 {
		t.Errorf("the list has only %d flags", len(want))
	}
}

// The facts are about flags that are there, each once.
func TestFlagFacts(t *testing.T) {
	all := parse(t).cmd.all
	seen := make(map[string]bool)
	for _, f := range flagFacts {
		if all.Lookup(f.flag) == nil || seen[f.flag] {
			t.Errorf("%s: no such flag, or twice", f.flag)
		}
		seen[f.flag] = true
	}
	without := []string{"config", "write-config-to", "master", "manifests", "init-only", "cleanup", "version", "help"}
	all.VisitAll(func(f *pflag.Flag) {
		if !seen[f.Name] && !slices.Contains(without, f.Name) {
			t.Errorf("nothing is said about --%s", f.Name)
		}
	})
}

func TestWrongFlags(t *testing.T) {
	for _, tt := range []struct {
		args string // separated by |
		want string
	}{
		{"--no-such-flag", "unknown flag: --no-such-flag"},
		{"serve", `unexpected argument "serve": kube-proxy takes flags only`},
		{"--oom-score-adj=x", `invalid argument "x" for "--oom-score-adj" flag: strconv.ParseInt: parsing "x": invalid syntax`},
		{"--bind-address=node1", `invalid argument "node1" for "--bind-address" flag: "node1" is not an IP address`},
		{"--healthz-bind-address=node1", `invalid argument "node1" for "--healthz-bind-address" flag: "node1" is neither IP nor IP:port`},
		{"--metrics-bind-address=node1:1", `invalid argument "node1:1" for "--metrics-bind-address" flag: "node1" is not an IP address`},
		{"--metrics-bind-address=1.2.3.4:http", `invalid argument "1.2.3.4:http" for "--metrics-bind-address" flag: "http" is not a port`},
		{"--metrics-bind-address=1.2.3.4:0", `--metrics-bind-address: "1.2.3.4:0": the port is not in the range from 1 to 65535`},
		{"--version=x", `invalid argument "x" for "--version" flag: "x" is none of true, false, raw, vX.Y.Z`},
		{"--proxy-mode=iptables", `--proxy-mode: "iptables" is not supported: this kube-proxy writes nftables rules only; give nftables, or leave it empty`},
		{"--oom-score-adj=-1001", "--oom-score-adj: -1001 is not in the range from -1000 to 1000"},
		{"--iptables-masquerade-bit=32", "--iptables-masquerade-bit: 32 is not in the range from 0 to 31"},
		{"--iptables-sync-period=0", "--iptables-sync-period: 0s is not greater than 0"},
		{"--iptables-min-sync-period=31s", "--iptables-min-sync-period: 31s is greater than the sync period, 30s"},
		{"--cluster-cidr=", `--cluster-cidr: "" is not a CIDR: leave the flag out if there is none`},
		{"--cluster-cidr=10.0.0.0/8,x", `--cluster-cidr: "x" is not a CIDR`},
		{"--cluster-cidr=10.0.0.0/8,11.0.0.0/8", `--cluster-cidr: "10.0.0.0/8,11.0.0.0/8" has two CIDRs of one family`},
		{"--cluster-cidr=10.0.0.0/8,fd00::/8,11.0.0.0/8", `--cluster-cidr: "10.0.0.0/8,fd00::/8,11.0.0.0/8" has more than one CIDR a family`},
		{"--nodeport-addresses=primary,10.0.0.0/8", `--nodeport-addresses: "primary" must stand alone`},
		{"--nodeport-addresses=10.0.0.1", `--nodeport-addresses: "10.0.0.1" is neither "primary" nor a CIDR`},
		{"--detect-local-mode=Guess", `--detect-local-mode: "Guess" is not supported: supported are ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix`},
		{"--detect-local-mode=BridgeInterface", "--pod-bridge-interface: must not be empty with this detectLocalMode"},
		{"--hostname-override=  ", `--hostname-override: "  " has no name in it: give the node's name, or leave the flag out`},
		{"--feature-gates=NoSuch=true", "--feature-gates: unrecognized feature gate: NoSuch: kube-proxy v1.36 has none of this name"},
		{"--feature-gates=NFTablesProxyMode=false", "--feature-gates: cannot set feature gate NFTablesProxyMode to false, feature is locked to true"},
		{"--show-hidden-metrics-for-version=1.36", `--show-hidden-metrics-for-version: "1.36" is not allowed: leave it out, or give the previous version, 1.35`},
		{"--logging-format=xml", `--logging-format: Invalid value: "xml": Unsupported log format`},
		{"--log-text-split-stream", "--log-text-split-stream: Forbidden: Feature LoggingAlphaOptions is disabled"},
		{"--config=testdata/good/all.yaml|--logging-format=xml", `--logging-format: Invalid value: "xml": Unsupported log format`},
		{"--config=testdata/good/all.yaml|--vmodule=a=2", "--vmodule: Forbidden: Only supported for text log format"},
		{"--config=testdata/good/all.yaml|--oom-score-adj=x", `invalid argument "x" for "--oom-score-adj" flag: strconv.ParseInt: parsing "x": invalid syntax`},
	} {
		_, err := Parse(strings.Split(tt.args, "|"))
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s:\n got %v\nwant %s", tt.args, err, tt.want)
		}
	}
}

func TestFlagWarnings(t *testing.T) {
	for _, tt := range []struct {
		args string
		want string // separated by |
	}{
		{"", ""},
		{"--proxy-mode=nftables --masquerade-all --iptables-sync-period=1m -v=2 --cluster-cidr=10.0.0.0/8", ""},
		{"--ipvs-scheduler=rr --iptables-localhost-nodeports=false", "--iptables-localhost-nodeports has no effect: it belongs to kube-proxy's iptables mode, this is nftables mode, " +
			"where NodePorts never listen on loopback addresses|--ipvs-scheduler has no effect: it belongs to kube-proxy's ipvs mode, this is nftables mode"},
		{"--machine-id-file=x", "--machine-id-file has no effect: kube-proxy does not use this file"},
		{"--healthz-port=1", "--healthz-port is deprecated: use --healthz-bind-address"},
		{"--config=testdata/good/all.yaml --healthz-port=1", "--healthz-port has no effect: with --config, healthzBindAddress in testdata/good/all.yaml counts"},
		{"--config=testdata/good/all.yaml --kubeconfig=x --proxy-mode=ipvs --master=http://x --hostname-override=y -v=3",
			"--kubeconfig has no effect: with --config, clientConnection.kubeconfig in testdata/good/all.yaml counts|" +
				"--proxy-mode has no effect: with --config, mode in testdata/good/all.yaml counts"},
		{"--feature-gates=GangScheduling=false,KMSv1=false,HPAScaleToZero=true,WatchListClient=false,ContextualLogging=false",
			"feature gate HPAScaleToZero has no effect here|feature gate KMSv1 will be removed in a later version: do not set it"},
		{"--write-config-to=x --metrics-port=0 --iptables-min-sync-period=0",
			"--iptables-min-sync-period: a configuration file cannot say this value, the default counts when the file is read|" +
				"--metrics-port is deprecated: use --metrics-bind-address|" +
				"--metrics-port: a configuration file cannot say this value, the default counts when the file is read"},
	} {
		if got := strings.Join(parse(t, strings.Fields(tt.args)...).Warnings(), "|"); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.args, got, tt.want)
		}
	}
}

// Values that the configuration gets from flags in another way than by their names.
func TestFlagValues(t *testing.T) {
	for _, tt := range []struct {
		args string
		get  func(*Options) any
		want any
	}{
		{"", func(o *Options) any { return o.Configuration.NFTables.MinSyncPeriod.Duration }, DefaultMinSyncPeriod},
		{"--iptables-min-sync-period=0", func(o *Options) any { return o.Configuration.NFTables.MinSyncPeriod.Duration }, time.Duration(0)},
		{"--iptables_min_sync_period=1s", func(o *Options) any { return o.Configuration.NFTables.MinSyncPeriod.Duration }, time.Second},
		{"--ipvs-sync-period=1s", func(o *Options) any { return o.Configuration.NFTables.SyncPeriod.Duration }, 30 * time.Second},
		{"--metrics-bind-address=", func(o *Options) any { return o.Configuration.MetricsBindAddress }, ""},
		{"--metrics-port=0", func(o *Options) any { return o.Configuration.MetricsBindAddress }, ""},
		{"--metrics-port=0 --write-config-to=x", func(o *Options) any { return o.Configuration.MetricsBindAddress }, "127.0.0.1:10249"},
		{"--metrics-bind-address=::1 --metrics-port=7", func(o *Options) any { return o.Configuration.MetricsBindAddress }, "[::1]:7"},
		{"--metrics-bind-address=::1 --metrics-port=0 --write-config-to=x", func(o *Options) any { return o.Configuration.MetricsBindAddress }, "[::1]:10249"},
		{"--healthz-bind-address=", func(o *Options) any { return o.Configuration.HealthzBindAddress }, "0.0.0.0:10256"},
		{"--healthz-port=0", func(o *Options) any { return o.Configuration.HealthzBindAddress }, ""},
		{"--config=testdata/good/all.yaml", func(o *Options) any { return o.Configuration.MetricsBindAddress }, "10.0.0.5:10249"},
		{"--config=testdata/good/all.yaml --hostname-override=B", func(o *Options) any { return o.Configuration.HostnameOverride }, "b"},
		{"--config=testdata/good/all.yaml -v=9", func(o *Options) any { return uint32(o.Configuration.Logging.Verbosity) }, uint32(9)},
		{"--config=testdata/good/all.yaml --master=x", func(o *Options) any { return o.Master }, "x"},
		{"--config=testdata/good/all.yaml --kubeconfig=x", func(o *Options) any { return o.Configuration.ClientConnection.Kubeconfig }, "/etc/kubernetes/kubeconfig"},
		{"--version", func(o *Options) any { return []bool{o.Version, o.VersionRaw} }, []bool{true, false}},
		{"--version=raw --config=none", func(o *Options) any { return []bool{o.Version, o.VersionRaw} }, []bool{true, true}},
		{"--version=v1.36.3-us.1", func(o *Options) any { return fmt.Sprint(o.Version, o.ReportedVersion) }, "falsev1.36.3-us.1"},
		{"-h --config=none", func(o *Options) any { return o.Help }, true},
		{"--cleanup --init-only --manifests=d", func(o *Options) any { return fmt.Sprint(o.Cleanup, o.InitOnly, o.Manifests) }, "true trued"},
		{"--feature-gates=WatchListClient=false", func(o *Options) any {
			return []bool{clientGates{o.FeatureGate}.Enabled("WatchListClient"), o.FeatureGate.Enabled("MultiCIDRServiceAllocator")}
		}, []bool{false, true}},
		{"--v=3", func(o *Options) any { return o.Flags()["v"] + o.Flags()["config-sync-period"] }, "315m0s"},
	} {
		if got := tt.get(parse(t, strings.Fields(tt.args)...)); fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%s: got %v, want %v", tt.args, got, tt.want)
		}
	}
}

func TestUsage(t *testing.T) {
	var b bytes.Buffer
	o := parse(t, "--help")
	o.PrintUsage(&b)
	for _, want := range []string{"Source flags:", "Node flags:", "Services flags:", "Servers flags:", "System flags:", "Process flags:", "Logging flags:", "Accepted, without effect flags:"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q", want)
		}
	}
	o.cmd.all.VisitAll(func(f *pflag.Flag) {
		if strings.Contains(b.String(), "--"+f.Name+" ") == f.Hidden {
			t.Errorf("--%s: shown although it is hidden, or not shown", f.Name)
		}
	})
}

// The file's logging section counts where no flag says otherwise, the patterns of both.
func TestLoggingOfFileAndFlags(t *testing.T) {
	file := t.TempDir() + "/config.yaml"
	err := os.WriteFile(file, []byte(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
featureGates: {LoggingAlphaOptions: true}
logging: {verbosity: 3, vmodule: [{filePattern: a, verbosity: 1}], options: {text: {splitStream: true, infoBufferSize: 4Ki}}}
`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	got := parse(t, "--config", file, "--vmodule=b=2", "--log-flush-frequency=1s").Configuration.Logging
	if got.Verbosity != 3 || fmt.Sprint(got.VModule) != "[{b 2} {a 1}]" || !got.Options.Text.SplitStream ||
		got.Options.Text.InfoBufferSize.String() != "4Ki" || got.FlushFrequency.Duration.Duration != time.Second {
		t.Errorf("got %+v", got)
	}
}
