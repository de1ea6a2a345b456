package config

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
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

// TestFlagsOfKubeProxy compares the flags with kube-proxy v1.36.3:
// name, shorthand, type, default, value without an argument, and whether it
// is hidden.
func TestFlagsOfKubeProxy(t *testing.T) {
	data, err := os.ReadFile("testdata/kube-proxy-v1.36.3-flags.tsv")
	if err != nil {
		t.Fatal(err)
	}
	ourDefaults := map[string]string{"iptables-min-sync-period": `"` + defaultMinSyncPeriod.String() + `"`}
	want := []string{
		"manifests\t\tstring\t\"\"\t\"\"\tfalse", "service-metrics\t\tstring\t\"off\"\t\"\"\tfalse",
		"local-status-pages\t\tbool\t\"false\"\t\"true\"\tfalse",
		"reset-stale-connections\t\tbool\t\"false\"\t\"true\"\tfalse",
		"max-service-rows\t\tint\t\"400000\"\t\"\"\tfalse", "max-namespace-rows\t\tint\t\"1000000\"\t\"\"\tfalse",
		"hash-table-size\t\tint\t\"251\"\t\"\"\tfalse",
	}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if d, ok := ourDefaults[words[0]]; ok {
			words[3] = d
		}
		want = append(want, strings.Join(words, "\t"))
	}
	var got []string
	parse(t).cmd.all.VisitAll(func(f *pflag.Flag) {
		got = append(got, fmt.Sprintf("%s\t%s\t%s\t%q\t%q\t%v",
			f.Name, f.Shorthand, f.Value.Type(), f.DefValue, f.NoOptDefVal, f.Hidden))
	})
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
		t.Errorf("got %d flags in the list, want at least 60", len(want))
	}
}

// TestFlagEffects checks that each flag has one declaration, and that only the
// listed flags have neither a field of the file nor a reason to be inert.
func TestFlagEffects(t *testing.T) {
	c := parse(t).cmd
	seen, without := make(map[string]bool), []string{"help"}
	for _, f := range c.flags {
		if c.all.Lookup(f.name) == nil || seen[f.name] {
			t.Errorf("%s: unknown flag or second declaration", f.name)
		}
		seen[f.name] = true
		if f.field == "" && f.inert == "" {
			without = append(without, f.name)
		}
	}
	slices.Sort(without)
	want := []string{
		"cleanup", "config", "hash-table-size", "help", "init-only", "local-status-pages", "manifests", "master",
		"max-namespace-rows", "max-service-rows", "reset-stale-connections", "service-metrics", "version",
		"write-config-to",
	}
	if !slices.Equal(without, want) {
		t.Errorf("got flags without field %q, want %q", without, want)
	}
	c.all.VisitAll(func(f *pflag.Flag) {
		if !seen[f.Name] && f.Name != "help" {
			t.Errorf("--%s has no declaration", f.Name)
		}
	})
}

// TestExceptions checks the flags that apply with --config.
func TestExceptions(t *testing.T) {
	const want = "--hostname-override --master --manifests --service-metrics --local-status-pages " +
		"--max-service-rows --max-namespace-rows --reset-stale-connections --hash-table-size"
	if got := strings.Join(parse(t).cmd.exceptions(), " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// inConfigDir changes to a directory with the config.yaml of
// all-fields.txtar.
func inConfigDir(t *testing.T) {
	t.Helper()
	t.Chdir(filepath.Dir(extract(t, "testdata/all-fields.txtar")))
}

func TestInvalidFlags(t *testing.T) {
	inConfigDir(t)
	for _, tt := range []struct{ args, want string }{ // args are separated by |
		{"--no-such-flag", "unknown flag: --no-such-flag"},
		{"serve", `unexpected argument "serve": kube-proxy takes flags only`},
		{"--oom-score-adj=x", `invalid argument "x" for "--oom-score-adj" flag: ` +
			`strconv.ParseInt: parsing "x": invalid syntax`},
		{"--bind-address=node1", `invalid argument "node1" for "--bind-address" flag: "node1" is not an IP address`},
		{"--healthz-bind-address=node1", `invalid argument "node1" for "--healthz-bind-address" flag: ` +
			`"node1" is neither IP nor IP:PORT`},
		{"--metrics-bind-address=node1:1", `invalid argument "node1:1" for "--metrics-bind-address" flag: ` +
			`"node1" is not an IP address`},
		{"--metrics-bind-address=1.2.3.4:http", `invalid argument "1.2.3.4:http" for "--metrics-bind-address" flag: ` +
			`"http" is not a port`},
		{"--metrics-bind-address=1.2.3.4:0",
			`--metrics-bind-address: "1.2.3.4:0": the port is not in the range from 1 to 65535`},
		{"--version=x", `invalid argument "x" for "--version" flag: "x" is none of true, false, raw, vX.Y.Z`},
		{"--proxy-mode=iptables", `--proxy-mode: "iptables" is not supported: nftproxy supports nftables only`},
		{"--oom-score-adj=-1001", "--oom-score-adj: -1001 is not in the range from -1000 to 1000"},
		{"--iptables-masquerade-bit=32", "--iptables-masquerade-bit: 32 is not in the range from 0 to 31"},
		{"--iptables-sync-period=0", "--iptables-sync-period: 0s is not greater than 0"},
		{"--iptables-min-sync-period=31s", "--iptables-min-sync-period: 31s is greater than the sync period, 30s"},
		{"--max-service-rows=-1", "--max-service-rows: -1 is less than 0"},
		{"--max-namespace-rows=-1|--config=config.yaml", "--max-namespace-rows: -1 is less than 0"},
		{"--hash-table-size=15", "--hash-table-size: 15 is not in the range from 16 to 65536"},
		{"--hash-table-size=65537|--config=config.yaml",
			"--hash-table-size: 65537 is not in the range from 16 to 65536"},
		{"--cluster-cidr=", `--cluster-cidr: must not be empty: set a CIDR or omit the flag`},
		{"--cluster-cidr=10.0.0.0/8,x", `--cluster-cidr: "x" is not a CIDR`},
		{"--cluster-cidr=10.0.0.0/8,11.0.0.0/8",
			`--cluster-cidr: "10.0.0.0/8,11.0.0.0/8" has two CIDRs of the same IP family`},
		{"--cluster-cidr=10.0.0.0/8,fd00::/8,11.0.0.0/8",
			`--cluster-cidr: "10.0.0.0/8,fd00::/8,11.0.0.0/8" has more than one CIDR per IP family`},
		{"--nodeport-addresses=primary,10.0.0.1",
			`--nodeport-addresses: "10.0.0.1" is none of primary, localhost, all and no CIDR`},
		{"--nodeport-addresses=Localhost",
			`--nodeport-addresses: "Localhost" is none of primary, localhost, all and no CIDR`},
		{"--detect-local-mode=Guess", `--detect-local-mode: "Guess" is not supported: ` +
			`supported values are ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix`},
		{"--detect-local-mode=BridgeInterface", "--pod-bridge-interface: must not be empty with this detectLocalMode"},
		{"--hostname-override=  ", `--hostname-override: "  " is blank: set the node's name or omit the flag`},
		{"--feature-gates=NFTablesNetlink=maybe",
			`invalid argument "NFTablesNetlink=maybe" for "--feature-gates" flag: ` +
				`invalid value of NFTablesNetlink: maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax`},
		{"--feature-gates==true", `--feature-gates: "" is not the name of a feature gate`},
		{"--show-hidden-metrics-for-version=1.37",
			`--show-hidden-metrics-for-version: "1.37" is not supported: ` +
				"supported values are 1.32, 1.33, 1.34, 1.35, 1.36"},
		{"--logging-format=xml", `--logging-format: Invalid value: "xml": Unsupported log format`},
		{"--log-text-split-stream", "--log-text-split-stream: Forbidden: Feature LoggingAlphaOptions is disabled"},
		{"--config=config.yaml|--logging-format=xml", `--logging-format: Invalid value: "xml": Unsupported log format`},
		{"--config=config.yaml|--vmodule=a=2", "--vmodule: Forbidden: Only supported for text log format"},
		{"--config=config.yaml|--oom-score-adj=x", `invalid argument "x" for "--oom-score-adj" flag: ` +
			`strconv.ParseInt: parsing "x": invalid syntax`},
	} {
		if _, err := Parse(strings.Split(tt.args, "|")); err == nil || err.Error() != tt.want {
			t.Errorf("%s:\n got %v\nwant %s", tt.args, err, tt.want)
		}
	}
}

func TestFlagWarnings(t *testing.T) {
	inConfigDir(t)
	for _, tt := range []struct {
		args string
		want []string
	}{
		{"", nil},
		{"--proxy-mode=nftables --masquerade-all --iptables-sync-period=1m -v=2 --cluster-cidr=10.0.0.0/8", nil},
		{"--ipvs-scheduler=rr --iptables-localhost-nodeports=false", []string{
			"--iptables-localhost-nodeports has no effect: it applies to kube-proxy's iptables mode only; " +
				"in nftables mode, nodePortAddresses with localhost selects loopback addresses",
			"--ipvs-scheduler has no effect: it applies to kube-proxy's ipvs mode only",
		}},
		{"--machine-id-file=x", []string{"--machine-id-file has no effect: kube-proxy does not use this file"}},
		{"--healthz-port=1", []string{"--healthz-port is deprecated: use --healthz-bind-address"}},
		{"--config=config.yaml --healthz-port=1", []string{
			"--healthz-port has no effect with --config: config.yaml sets healthzBindAddress",
		}},
		{"--ipvs-scheduler=sh", []string{
			"--ipvs-scheduler has no effect: it applies to kube-proxy's ipvs mode only; the annotation " +
				"nftproxy.io/balance: source-hash of a Service selects endpoints by the addresses of clients",
		}},
		{"--config=config.yaml --kubeconfig=x --proxy-mode=ipvs --master=http://x --hostname-override=y -v=3", []string{
			"--kubeconfig has no effect with --config: config.yaml sets clientConnection.kubeconfig",
			"--proxy-mode has no effect with --config: config.yaml sets mode",
		}},
		{"--feature-gates=GangScheduling=false,KMSv1=false,HPAScaleToZero=true," +
			"WatchListClient=false,ContextualLogging=false", []string{
			"feature gate GangScheduling has no effect on nftproxy",
			"feature gate HPAScaleToZero has no effect on nftproxy",
			"feature gate KMSv1 has no effect on nftproxy",
		}},
		{"--feature-gates=NFTablesNetlink=true,KubeProxyNFTablesLocalhostNodePorts=true,NoSuch=true," +
			"InOrderInformers=false,InformerResourceVersion=true", []string{
			"feature gate InOrderInformers is locked to true in kube-proxy v1.37: false is ignored",
			"feature gate InformerResourceVersion will be removed in a future release: do not set it",
			"feature gate NFTablesNetlink has no effect: nftproxy always uses netlink",
			"feature gate NoSuch is unknown to kube-proxy v1.37: ignored",
		}},
		{"--write-config-to=x --metrics-port=0 --iptables-min-sync-period=0", []string{
			"--iptables-min-sync-period: this value means the default in a configuration file",
			"--metrics-port is deprecated: use --metrics-bind-address",
			"--metrics-port: this value means the default in a configuration file",
		}},
	} {
		if got := parse(t, strings.Fields(tt.args)...).Warnings(); !slices.Equal(got, tt.want) {
			t.Errorf("%s:\n got %q\nwant %q", tt.args, got, tt.want)
		}
	}
}

// TestFlagValues checks the flags that are not bound to a field of the same
// name.
func TestFlagValues(t *testing.T) {
	inConfigDir(t)
	minSync := func(o *Options) any { return o.Configuration.NFTables.MinSyncPeriod.Duration }
	sync := func(o *Options) any { return o.Configuration.NFTables.SyncPeriod.Duration }
	metrics := func(o *Options) any { return o.Configuration.MetricsBindAddress }
	healthz := func(o *Options) any { return o.Configuration.HealthzBindAddress }
	hostname := func(o *Options) any { return o.Configuration.HostnameOverride }
	verbosity := func(o *Options) any { return uint32(o.Configuration.Logging.Verbosity) }
	kubeconfig := func(o *Options) any { return o.Configuration.ClientConnection.Kubeconfig }
	actions := func(o *Options) any { return fmt.Sprintf("%v %v %s", o.Cleanup, o.InitOnly, o.Manifests) }
	versions := func(o *Options) any { return fmt.Sprintf("%s %v", o.Version, o.Version.Printed()) }
	gates := func(o *Options) any {
		return []bool{
			clientGates{o.FeatureGate}.Enabled("WatchListClient"), o.FeatureGate.Enabled("MultiCIDRServiceAllocator"),
		}
	}
	flags := func(o *Options) any { return o.Flags()["v"] + " " + o.Flags()["config-sync-period"] }
	for _, tt := range []struct {
		args string
		get  func(*Options) any
		want any
	}{
		{"", minSync, defaultMinSyncPeriod},
		{"--iptables-min-sync-period=0", minSync, time.Duration(0)},
		{"--iptables_min_sync_period=1s", minSync, time.Second},
		{"--ipvs-sync-period=1s", sync, 30 * time.Second},
		{"--metrics-bind-address=", metrics, ""},
		{"--metrics-port=0", metrics, ""},
		{"--metrics-port=0 --write-config-to=x", metrics, "127.0.0.1:10249"},
		{"--metrics-bind-address=::1 --metrics-port=7", metrics, "[::1]:7"},
		{"--metrics-bind-address=::1 --metrics-port=0 --write-config-to=x", metrics, "[::1]:10249"},
		{"--healthz-bind-address=", healthz, "0.0.0.0:10256"},
		{"--healthz-port=0", healthz, ""},
		{"--config=config.yaml", metrics, "10.0.0.5:10249"},
		{"--config=config.yaml --hostname-override=B", hostname, "b"},
		{"--config=config.yaml -v=9", verbosity, uint32(9)},
		{"--config=config.yaml --master=x", func(o *Options) any { return o.Master }, "x"},
		{"--config=config.yaml --kubeconfig=x", kubeconfig, "/etc/kubernetes/kubeconfig"},
		{"--version", versions, "true true"},
		{"--version=raw --config=none", versions, "raw true"},
		{"--version=v1.36.3-us.1", versions, "v1.36.3-us.1 false"},
		{"-h --config=none", func(o *Options) any { return o.Help }, true},
		{"--cleanup --init-only --manifests=d", actions, "true true d"},
		{"--feature-gates=WatchListClient=false", gates, []bool{false, true}},
		{"--v=3", flags, "3 15m0s"},
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
	for _, want := range []string{"Source", "Node", "Services", "Servers", "System", "Process", "Logging", "Ignored"} {
		if !strings.Contains(b.String(), "\n"+want+" flags:\n") {
			t.Errorf("the usage has no group %q", want)
		}
	}
	o.cmd.all.VisitAll(func(f *pflag.Flag) {
		if got := strings.Contains(b.String(), "--"+f.Name+" "); got == f.Hidden {
			t.Errorf("--%s: got shown %v, want %v", f.Name, got, !f.Hidden)
		}
	})
}

// TestLoggingOfFileAndFlags checks that logging flags have precedence over
// the file, and that the patterns of both apply.
func TestLoggingOfFileAndFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	write(t, file, `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
featureGates: {LoggingAlphaOptions: true}
logging:
  verbosity: 3
  vmodule: [{filePattern: a, verbosity: 1}]
  options: {text: {splitStream: true, infoBufferSize: 4Ki}}
`)
	got := parse(t, "--config", file, "--vmodule=b=2", "--log-flush-frequency=1s").Configuration.Logging
	if got.Verbosity != 3 || fmt.Sprint(got.VModule) != "[{b 2} {a 1}]" || !got.Options.Text.SplitStream ||
		got.Options.Text.InfoBufferSize.String() != "4Ki" || got.FlushFrequency.Duration.Duration != time.Second {
		t.Errorf("got %+v", got)
	}
}
