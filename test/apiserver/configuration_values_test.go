package apiserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// pools returns values of each field: valid, unusual and invalid ones.
func pools() map[string][]string {
	return map[string][]string{
		"bindAddress": {
			`""`, "0.0.0.0", `"::"`, "10.0.0.1", `"fd00::1"`, "010.0.0.1", "nonsense", "null",
		},
		"healthzBindAddress": {
			`""`, "1.2.3.4", "1.2.3.4:5", `"[::]:10"`, `"::1"`, "1.2.3.4:0", "1.2.3.4:70000", "x:1", "1.2.3.4:http",
		},
		"metricsBindAddress":          {`""`, "1.2.3.4", "1.2.3.4:5", `"[::]:10"`, `"::1"`, "1.2.3.4:0", "host"},
		"bindAddressHardFail":         {"true", "false"},
		"enableProfiling":             {"true", "false", `"yes"`},
		"showHiddenMetricsForVersion": {`""`, `"1.35"`, `"1.31"`, "1.35", "x"},
		"hostnameOverride":            {`""`, "Node-1", `" Node "`},
		"clusterCIDR": {
			`""`, "10.0.0.0/8", `"10.0.0.0/8,fd00::/64"`, `"10.0.0.0/8, fd00::/64"`, `"10.0.0.0/8,11.0.0.0/8"`,
			`"a,b,c"`,
			"010.1.0.0/16", "10.0.0.1",
		},
		"detectLocalMode": {
			`""`, "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix", "clustercidr",
		},
		"detectLocal.bridgeInterface":     {`""`, "cbr0"},
		"detectLocal.interfaceNamePrefix": {`""`, "veth"},
		"nodePortAddresses": {
			"[]", "null", "[primary]", "[10.0.0.0/8]", `["::/0", 0.0.0.0/0]`,
			"[10.0.0.1]",
		},
		"oomScoreAdj":                     {"null", "0", "-1000", "1000", "1001", "-1001"},
		"configSyncPeriod":                {"0s", "1s", "-1s", "null"},
		"conntrack.maxPerCore":            {"null", "0", "7", "-1"},
		"conntrack.min":                   {"null", "0", "7", "-1"},
		"conntrack.tcpEstablishedTimeout": {"null", "0s", "5s", "-1s"},
		"conntrack.tcpCloseWaitTimeout":   {"null", "0s", "5s", "-1s"},
		"conntrack.tcpBeLiberal":          {"true", "false"},
		"conntrack.udpTimeout":            {"0s", "5s", "-1s"},
		"conntrack.udpStreamTimeout":      {"0s", "5s", "-1s"},
		"iptables.masqueradeBit":          {"null", "0", "31", "32", "-1"},
		"iptables.masqueradeAll":          {"true", "false"},
		"iptables.syncPeriod":             {"0s", "5s", "-5s"},
		"iptables.minSyncPeriod":          {"0s", "5s", "-5s"},
		"iptables.localhostNodePorts":     {"null", "true", "false"},
		"ipvs.scheduler":                  {`""`, "rr"},
		"ipvs.strictARP":                  {"true"},
		"ipvs.excludeCIDRs":               {"null", "[10.0.0.0/8]", "[x]"},
		"ipvs.tcpTimeout":                 {"0s", "1s", "-1s"},
		"ipvs.syncPeriod":                 {"0s", "1s"},
		"nftables.masqueradeBit":          {"null", "0", "31", "32", "-1"},
		"nftables.masqueradeAll":          {"true", "false"},
		"nftables.syncPeriod":             {"0s", "5s", "-5s", "1h"},
		"nftables.minSyncPeriod":          {"0s", "2s", "6s", "-5s"},
		"clientConnection.burst":          {"0", "-1", "100"},
		"clientConnection.qps":            {"0", "-1", "50"},
		"clientConnection.contentType":    {`""`, "application/json"},
		"clientConnection.kubeconfig":     {`""`, "/etc/kubeconfig"},
		"logging.format":                  {`""`, "text", "json", "xml"},
		"logging.verbosity":               {"0", "4", "-1"},
		"logging.flushFrequency":          {"0", "5s", "1000000000", "-1s"},
		"logging.vmodule":                 {"null", "[{filePattern: a, verbosity: 3}]", "[{verbosity: 3}]"},
		"featureGates": {
			"null", "{}", "{AllAlpha: false}", "{ContextualLogging: false}",
			"{NFTablesProxyMode: maybe}", "{LoggingAlphaOptions: true}",
			"{KMSv1: true}",
		},
		"winkernel.enableDSR":  {"true"},
		"portRange":            {`""`, "1-2"},
		"windowsRunAsService":  {"true", "false"},
		"noSuchField":          {"1"},
		"nftables.noSuchField": {"1"},
	}
}

// document returns a file with the fields.
func document(fields map[string]string) string {
	sections := make(map[string][]string)
	var b strings.Builder
	b.WriteString("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n")
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if section, field, ok := strings.Cut(name, "."); ok {
			sections[section] = append(sections[section], "  "+field+": "+fields[name])
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n", name, fields[name])
	}
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		fmt.Fprintf(&b, "%s:\n%s\n", name, strings.Join(sections[name], "\n"))
	}
	return b.String()
}

// commandLines returns flags with valid and invalid values.
func commandLines() [][]string {
	return [][]string{
		{}, {"--bind-address=::"}, {"--bind-address="}, {"--bind-address=x"}, {"--bind-address=10.0.0.1"},
		{"--bind-address-hard-fail"}, {"--bind_address_hard_fail=true"},
		{"--boot-id-file=x", "--machine-id-file=y"}, {"--cluster-cidr=10.0.0.0/8,fd00::/64"},
		{"--cluster-cidr=10.0.0.0/8, fd00::/64"}, {"--cluster-cidr=x"}, {"--cluster-cidr="},
		{"--cluster-cidr=", "--detect-local-mode=NodeCIDR"}, {"--cluster-cidr=x", "--detect-local-mode=NodeCIDR"},
		{"--detect-local-mode=BridgeInterface"},
		{"--detect-local-mode=BridgeInterface", "--pod-bridge-interface=cbr0"},
		{"--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=veth"}, {"--detect-local-mode=x"},
		{"--config-sync-period=1m"}, {"--config-sync-period=0"}, {"--config-sync-period=1"},
		{"--conntrack-max-per-core=0"}, {"--conntrack-max-per-core=-1"}, {"--conntrack-min=1"}, {"--conntrack-min=x"},
		{"--conntrack-tcp-be-liberal"}, {"--conntrack-tcp-timeout-close-wait=0"},
		{"--conntrack-tcp-timeout-established=5m"}, {"--conntrack-udp-timeout=1s"},
		{"--conntrack-udp-timeout-stream=-1s"},
		{"--feature-gates=AllAlpha=true"}, {"--feature-gates=AllBeta=false"},
		{"--feature-gates=ContextualLogging=false,LoggingAlphaOptions=true"},
		{"--feature-gates=NFTablesProxyMode=maybe"},
		{"--feature-gates=x"},
		{"--healthz-bind-address=1.2.3.4:5"}, {"--healthz-bind-address=1.2.3.4:x"}, {"--healthz-bind-address="},
		{"--healthz-bind-address=x"}, {"--metrics-bind-address=[::]:5"}, {"--healthz-port=7"},
		{"--hostname-override= A "}, {"--hostname-override= "}, {"--hostname-override="}, {"--init-only"},
		{"--cleanup"},
		{"--iptables-localhost-nodeports=false"}, {"--iptables-masquerade-bit=3"}, {"--iptables-masquerade-bit=32"},
		{"--iptables-min-sync-period=5s"}, {"--iptables-min-sync-period=1m"}, {"--iptables-sync-period=5s"},
		{"--iptables-sync-period=0"},
		{"--ipvs-exclude-cidrs=10.0.0.0/8", "--ipvs-min-sync-period=3s", "--ipvs-scheduler=rr", "--ipvs-strict-arp",
			"--ipvs-sync-period=2s", "--ipvs-tcp-timeout=1s", "--ipvs-tcpfin-timeout=1s", "--ipvs-udp-timeout=1s"},
		{"--kube-api-burst=5"}, {"--kube-api-burst=-5"}, {"--kube-api-content-type=application/json"},
		{"--kube-api-qps=2.5"}, {"--kubeconfig=/x"}, {"--master=http://x"},
		{"--log-flush-frequency=1s"}, {"--log-flush-frequency=0"}, {"--logging-format=json"}, {"--logging-format=x"},
		{"--log-json-split-stream"},
		{"--feature-gates=LoggingAlphaOptions=true", "--logging-format=json",
			"--log-json-split-stream", "--log-json-info-buffer-size=4Ki"},
		{"--log-text-split-stream"}, {"-v=4"}, {"-v", "4"}, {"--v=x"}, {"--vmodule=b=2,c=3"}, {"--vmodule=b"},
		{"--logging-format=json", "--vmodule=b=2"},
		{"--masquerade-all"}, {"--nodeport-addresses=primary"}, {"--nodeport-addresses=10.0.0.0/8,::/0"},
		{"--nodeport-addresses=10.0.0.0/8", "--nodeport-addresses=::/0"}, {"--nodeport-addresses=x"},
		{"--oom-score-adj=5"}, {"--oom-score-adj=5000"}, {"--profiling"}, {"--show-hidden-metrics-for-version=1.35"},
		{"--show-hidden-metrics-for-version=1.31"}, {"--no-such-flag"}, {"arg"}, {""},
	}
}

// oddFiles returns files that document cannot.
func oddFiles() []string {
	const head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
	return []string{
		"", "---", "x", "[]", "kind: KubeProxyConfiguration\n", "apiVersion: kubeproxy.config.k8s.io/v1alpha1\n",
		strings.Replace(head, "v1alpha1", "v1", 1), strings.Replace(head, "v1alpha1", "v1beta1", 1),
		"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n", "apiVersion: v1\nkind: ConfigMap\n",
		head + "mode: nftables\nmode: nftables\n", head + "mode: nftables\nMode: x\n",
		head + "mode: 5\n", head + "mode: nftables\nnftables: []\n",
		head + "mode: nftables\n---\n" + head + "mode: x\n", head + "mode: nftables\n\tbad", head +
			"mode: kernelspace\n",
		`{"apiVersion":"kubeproxy.config.k8s.io/v1alpha1","kind":"KubeProxyConfiguration","mode":"nftables"}`,
		`{"apiVersion":"kubeproxy.config.k8s.io/v1alpha1","kind":"KubeProxyConfiguration",` +
			`"mode":"nftables","mode":"nftables"}`,
	}
}
