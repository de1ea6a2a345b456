package config

// flagFact describes the effect of a flag.
type flagFact struct {
	flag string
	// field is the equivalent field of the configuration file, "" for none.
	field string
	// overrides reports whether the flag has precedence over the file.
	overrides bool
	// inert is the reason why the flag has no effect, "" if it has one.
	inert string
	// deprecated names the replacement of a deprecated flag.
	deprecated string
}

const (
	noIPTables          = "it applies to kube-proxy's iptables mode only"
	noIPVS              = "it applies to kube-proxy's ipvs mode only"
	noWindows           = "it applies to Windows only"
	noLocalhostNodePort = noIPTables + "; in nftables mode, nodePortAddresses with localhost selects loopback addresses"
	noID                = "kube-proxy does not use this file"
)

// flagFacts has the order of --help.
var flagFacts = []flagFact{
	{flag: "kubeconfig", field: "clientConnection.kubeconfig"},
	{flag: "kube-api-content-type", field: "clientConnection.contentType"},
	{flag: "kube-api-qps", field: "clientConnection.qps"},
	{flag: "kube-api-burst", field: "clientConnection.burst"},
	{flag: "config-sync-period", field: "configSyncPeriod"},
	{flag: "hostname-override", field: "hostnameOverride", overrides: true},
	{flag: "bind-address", field: "bindAddress"},
	{flag: "detect-local-mode", field: "detectLocalMode"},
	{flag: "cluster-cidr", field: "clusterCIDR"},
	{flag: "pod-bridge-interface", field: "detectLocal.bridgeInterface"},
	{flag: "pod-interface-name-prefix", field: "detectLocal.interfaceNamePrefix"},
	{flag: "proxy-mode", field: "mode"},
	{flag: "masquerade-all", field: "nftables.masqueradeAll"},
	{flag: "nodeport-addresses", field: "nodePortAddresses"},
	{flag: "iptables-sync-period", field: "nftables.syncPeriod"},
	{flag: "iptables-min-sync-period", field: "nftables.minSyncPeriod"},
	{flag: "healthz-bind-address", field: "healthzBindAddress"},
	{flag: "metrics-bind-address", field: "metricsBindAddress"},
	{flag: "healthz-port", field: "healthzBindAddress", deprecated: "use --healthz-bind-address"},
	{flag: "metrics-port", field: "metricsBindAddress", deprecated: "use --metrics-bind-address"},
	{flag: "bind-address-hard-fail", field: "bindAddressHardFail"},
	{flag: "profiling", field: "enableProfiling"},
	{flag: "show-hidden-metrics-for-version", field: "showHiddenMetricsForVersion"},
	{flag: "oom-score-adj", field: "oomScoreAdj"},
	{flag: "conntrack-max-per-core", field: "conntrack.maxPerCore"},
	{flag: "conntrack-min", field: "conntrack.min"},
	{flag: "conntrack-tcp-timeout-established", field: "conntrack.tcpEstablishedTimeout"},
	{flag: "conntrack-tcp-timeout-close-wait", field: "conntrack.tcpCloseWaitTimeout"},
	{flag: "conntrack-tcp-be-liberal", field: "conntrack.tcpBeLiberal"},
	{flag: "conntrack-udp-timeout", field: "conntrack.udpTimeout"},
	{flag: "conntrack-udp-timeout-stream", field: "conntrack.udpStreamTimeout"},
	{flag: "feature-gates", field: "featureGates"},
	{flag: "logging-format", field: "logging.format", overrides: true},
	{flag: "log-flush-frequency", field: "logging.flushFrequency", overrides: true},
	{flag: "v", field: "logging.verbosity", overrides: true},
	{flag: "vmodule", field: "logging.vmodule", overrides: true},
	{flag: "log-text-split-stream", field: "logging.options.text.splitStream", overrides: true},
	{flag: "log-text-info-buffer-size", field: "logging.options.text.infoBufferSize", overrides: true},
	{flag: "log-json-split-stream", field: "logging.options.json.splitStream", overrides: true},
	{flag: "log-json-info-buffer-size", field: "logging.options.json.infoBufferSize", overrides: true},
	{flag: "iptables-masquerade-bit", field: "iptables.masqueradeBit",
		inert: noIPTables + "; set nftables.masqueradeBit in a configuration file"},
	{flag: "iptables-localhost-nodeports", inert: noLocalhostNodePort},
	{flag: "ipvs-sync-period", inert: noIPVS},
	{flag: "ipvs-min-sync-period", inert: noIPVS},
	{flag: "ipvs-scheduler", inert: noIPVS},
	{flag: "ipvs-exclude-cidrs", inert: noIPVS},
	{flag: "ipvs-strict-arp", inert: noIPVS},
	{flag: "ipvs-tcp-timeout", inert: noIPVS},
	{flag: "ipvs-tcpfin-timeout", inert: noIPVS},
	{flag: "ipvs-udp-timeout", inert: noIPVS},
	{flag: "boot-id-file", inert: noID},
	{flag: "machine-id-file", inert: noID},
}

func factOf(flag string) flagFact {
	for _, f := range flagFacts {
		if f.flag == flag {
			return f
		}
	}
	return flagFact{flag: flag}
}
