package config

import (
	"fmt"
	"strings"
	"time"

	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// Reasons why flags and fields have no effect.
const (
	noIPTables          = "it applies to kube-proxy's iptables mode only"
	noIPVS              = "it applies to kube-proxy's ipvs mode only"
	noWindows           = "it applies to Windows only"
	noLocalhostNodePort = noIPTables + "; in nftables mode, nodePortAddresses with localhost selects loopback addresses"
	noID                = "kube-proxy does not use this file"
)

// groupNames are the groups of flags in the order of --help.
var groupNames = []string{"Source", "Node", "Services", "Servers", "System", "Process", "Logging", "Ignored"}

// newCommandLine declares the flags, each with the variable that it sets and
// that holds its default, its effect and its help. Names, types and defaults
// are as in kube-proxy v1.37. Only the flags with a field of ownSection
// are new.
//
// The help of --config lists the flags in the order of their declaration.
func newCommandLine(o *Options) *commandLine {
	c := &commandLine{options: o}
	c.addNode()
	c.addSource()
	c.addServers()
	c.addServices()
	c.addSystem()
	c.addProcess()
	c.addLogging()
	c.addIgnored()
	config := c.groups.FlagSet("Source").Lookup("config")
	config.Usage = fmt.Sprintf(config.Usage, strings.Join(c.exceptions(), ", "))
	return c
}

func (c *commandLine) addNode() {
	config := c.options.Configuration
	c.add("Node", []flagSpec{
		{"hostname-override", &c.hostnameOverride, effect{field: "hostnameOverride", overrides: true},
			"`NAME` of this node in the API. Defaults to the host name."},
		{"bind-address", &text{value: &config.BindAddress, typ: "ip", check: checkIP, keepOnEmpty: true},
			effect{field: "bindAddress"},
			"`IP` address of this node, instead of the address of its Node object. No server listens on it."},
		{"detect-local-mode", &text{value: (*string)(&config.DetectLocalMode), typ: "LocalMode"},
			effect{field: "detectLocalMode"},
			"`MODE` to detect traffic from pods: ClusterCIDR (default), NodeCIDR (spec.podCIDRs of the Node), " +
				"BridgeInterface or InterfaceNamePrefix."},
		{"cluster-cidr", &config.ClusterCIDR, effect{field: "clusterCIDR"},
			"`CIDR` of all pods of the cluster, or two separated by a comma, one per IP family, for mode " +
				"ClusterCIDR. Traffic to ClusterIPs from other sources is masqueraded."},
		{"pod-bridge-interface", &config.DetectLocal.BridgeInterface, effect{field: "detectLocal.bridgeInterface"},
			"`NAME` of the bridge that connects the pods of this node, for mode BridgeInterface."},
		{"pod-interface-name-prefix", &config.DetectLocal.InterfaceNamePrefix,
			effect{field: "detectLocal.interfaceNamePrefix"},
			"`PREFIX` of the interface names of pods on this node, for mode InterfaceNamePrefix."},
	})
}

func (c *commandLine) addSource() {
	o, client := c.options, &c.options.Configuration.ClientConnection
	c.add("Source", []flagSpec{
		{"config", &o.ConfigFile, effect{},
			"Read the configuration from `FILE`, a KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1). " +
				"Other flags are ignored, except %s and the logging flags. " +
				"If the file changes and is valid, kube-proxy exits for a restart."},
		{"kubeconfig", &client.Kubeconfig, effect{field: "clientConnection.kubeconfig"},
			"Connect to the API server of this kubeconfig `FILE`. " +
				"Without this flag and --master, kube-proxy uses the service account of its pod."},
		{"master", &o.Master, effect{overrides: true},
			"`URL` of the API server. It overrides the address in the kubeconfig."},
		{"kube-api-content-type", &client.ContentType,
			effect{field: "clientConnection.contentType", zeroIsDefault: true},
			"Content `TYPE` of requests to the API server."},
		{"kube-api-qps", &client.QPS, effect{field: "clientConnection.qps", zeroIsDefault: true},
			"Maximum `NUMBER` of requests per second to the API server."},
		{"kube-api-burst", &client.Burst, effect{field: "clientConnection.burst", zeroIsDefault: true},
			"`NUMBER` of requests above --kube-api-qps that a burst to the API server may have."},
		{"config-sync-period", &o.Configuration.ConfigSyncPeriod.Duration, effect{field: "configSyncPeriod"},
			"`INTERVAL` at which all objects of the API server are processed again."},
		{"manifests", &o.Manifests, own("manifests"),
			"Serve the manifests (*.yaml, *.yml, *.json) in `DIR` instead of an API server: " +
				"Services, EndpointSlices, the Node of this node and ServiceCIDRs. Changes take effect immediately."},
	})
}

func (c *commandLine) addServers() {
	config, rules := c.options.Configuration, &c.options.Rules
	rules.ServiceMetrics = ruleset.ServiceMetricsOff
	counted := (*string)(&rules.ServiceMetrics)
	c.healthzPort, c.metricsPort = defaultHealthzPort, defaultMetricsPort
	c.add("Servers", []flagSpec{
		{"healthz-bind-address",
			&text{value: &config.HealthzBindAddress, typ: "ipport", check: checkIPPort, keepOnEmpty: true},
			effect{field: "healthzBindAddress"},
			"Serve /healthz and /livez on `IP:PORT`."},
		{"metrics-bind-address", &text{value: &config.MetricsBindAddress, typ: "ipport", check: checkIPPort},
			effect{field: "metricsBindAddress", zeroIsDefault: true},
			"Serve /metrics, /configz and /proxyMode on `IP:PORT`. An empty value disables the server."},
		{"service-metrics", &text{value: counted, typ: "string", check: checkServiceMetrics, keepOnEmpty: true},
			own("serviceMetrics"),
			"Count new connections to these `SERVICES`: off, annotated (those with the annotation " +
				translate.AnnotationMetrics + `: "true"), or all. The metric is nftproxy_service_connections_total.`},
		{"local-status-pages", &c.options.LocalStatusPages, own("localStatusPages"),
			"Serve the pages of --metrics-bind-address only to clients on a loopback address, except /metrics and " +
				"/healthz."},
		{"bind-address-hard-fail", &config.BindAddressHardFail, effect{field: "bindAddressHardFail"},
			"Exit if one of these ports is in use. By default kube-proxy retries."},
		{"profiling", &config.EnableProfiling, effect{field: "enableProfiling"},
			"Serve /debug/pprof and /debug/flags/v on --metrics-bind-address."},
		{"show-hidden-metrics-for-version", &config.ShowHiddenMetricsForVersion,
			effect{field: "showHiddenMetricsForVersion"},
			"Show the metrics that were hidden after this `VERSION`. Supported versions are " +
				strings.Join(previousVersions, ", ") + "."},
		{"healthz-port", &c.healthzPort,
			effect{field: "healthzBindAddress", deprecated: "use --healthz-bind-address", zeroIsDefault: true},
			"`PORT` if --healthz-bind-address has none. 0 disables the server."},
		{"metrics-port", &c.metricsPort,
			effect{field: "metricsBindAddress", deprecated: "use --metrics-bind-address", zeroIsDefault: true},
			"`PORT` if --metrics-bind-address has none. 0 disables the server."},
	})
}

func (c *commandLine) addServices() {
	config, rules := c.options.Configuration, &c.options.Rules
	rules.Budgets = ruleset.Budgets{Service: ruleset.DefaultServiceRows, Namespace: ruleset.DefaultNamespaceRows}
	rules.HashTableSize, rules.Eject, rules.RetryAfter = cluster.DefaultHashTableSize, true, time.Second
	c.add("Services", []flagSpec{
		{"proxy-mode", &text{value: (*string)(&config.Mode), typ: "ProxyMode"}, effect{field: "mode"},
			"Proxy `MODE`. The only supported mode is nftables, which is the default."},
		{"masquerade-all", &config.NFTables.MasqueradeAll, effect{field: "nftables.masqueradeAll"},
			"Masquerade all traffic to ClusterIPs."},
		{"nodeport-addresses", &config.NodePortAddresses, effect{field: "nodePortAddresses"},
			"Accept NodePort connections on these `ADDRESSES`, a comma-separated list of CIDRs of local addresses " +
				"and the keywords primary (the addresses of the Node object, the default), localhost (127.0.0.0/8 " +
				"and ::1/128) and all (0.0.0.0/0 and ::/0). A list without an address of one IP family does not " +
				"restrict that family. On 127.0.0.1 and ::1, TCP NodePorts listen only if the list includes " +
				"localhost or a loopback CIDR, and the feature gate " + gateLocalhostNodePorts + " is enabled."},
		{"iptables-sync-period", &config.NFTables.SyncPeriod.Duration, effect{field: "nftables.syncPeriod"},
			"`INTERVAL` at which failed updates are retried. Despite its name, it applies to nftables mode."},
		{"iptables-min-sync-period", &config.NFTables.MinSyncPeriod.Duration,
			effect{field: "nftables.minSyncPeriod", zeroIsDefault: true},
			"Minimum `INTERVAL` between rule updates (0: no limit). Despite its name, it applies to nftables mode."},
		{"max-service-rows", &rules.Budgets.Service, own("maxServiceRows"),
			"Limit the rules of a Service to this `NUMBER` of rows in each address family. " +
				"A Service that needs more is served with fewer endpoints, external IPs and source ranges."},
		{"max-namespace-rows", &rules.Budgets.Namespace, own("maxNamespaceRows"),
			"Limit the rules of all Services of a namespace to this `NUMBER` of rows in each address family. " +
				"The oldest Services get them first."},
		{"reset-stale-connections", &rules.ResetStaleConnections, own("resetStaleConnections"),
			"Reset TCP and SCTP connections to an endpoint that is gone: it was last seen terminating, or neither " +
				"ready nor serving, and has been in no EndpointSlice for half a second."},
		{"eject", &rules.Eject, own("eject"),
			"Make new TCP connections of this node avoid an endpoint that answers neither clients nor probes, " +
				"until it answers a probe. The annotation " + translate.AnnotationEject +
				`: "false" excludes a Service.`},
		{"retry-after", &seconds{&rules.RetryAfter, ruleset.MaxRetryAfter}, own("retryAfter"),
			"`TIME` in seconds (0: never) after which a new connection without an answer can get another endpoint: " +
				"when the client repeats its first packet. Services with the annotation " +
				translate.AnnotationRetry + `: "false" are left out.`},
		{"hash-table-size", &rules.HashTableSize,
			effect{
				field: ownSection + ".hashTableSize", overrides: true,
				low: cluster.MinHashTableSize, high: cluster.MaxHashTableSize,
			},
			"`NUMBER` of rows of the tables of Services with the annotation " + translate.AnnotationBalance +
				" or with weights, unless " + translate.AnnotationHashTableSize + " sets it. Must be the same on all " +
				"nodes."},
	})
}

func (c *commandLine) addSystem() {
	config := c.options.Configuration
	conntrack := &config.Conntrack
	c.add("System", []flagSpec{
		{"oom-score-adj", config.OOMScoreAdj, effect{field: "oomScoreAdj"},
			"OOM `SCORE` adjustment of this process, from -1000 to 1000."},
		{"conntrack-max-per-core", conntrack.MaxPerCore, effect{field: "conntrack.maxPerCore"},
			"Maximum `NUMBER` of tracked connections per CPU core " +
				"(0: keep the limit of the node and ignore --conntrack-min)."},
		{"conntrack-min", conntrack.Min, effect{field: "conntrack.min"},
			"Lower bound for the maximum `NUMBER` of tracked connections on nodes with few CPU cores."},
		{"conntrack-tcp-timeout-established", &conntrack.TCPEstablishedTimeout.Duration,
			effect{field: "conntrack.tcpEstablishedTimeout"},
			"Idle `TIMEOUT` of established TCP connections (0: keep the timeout of the node)."},
		{"conntrack-tcp-timeout-close-wait", &conntrack.TCPCloseWaitTimeout.Duration,
			effect{field: "conntrack.tcpCloseWaitTimeout"},
			"Idle `TIMEOUT` of TCP connections in CLOSE_WAIT (0: keep the timeout of the node)."},
		{"conntrack-tcp-be-liberal", &conntrack.TCPBeLiberal, effect{field: "conntrack.tcpBeLiberal"},
			"Accept TCP packets outside the TCP window (sysctl nf_conntrack_tcp_be_liberal)."},
		{"conntrack-udp-timeout", &conntrack.UDPTimeout.Duration, effect{field: "conntrack.udpTimeout"},
			"Idle `TIMEOUT` of UDP flows without an answer (0: keep the timeout of the node)."},
		{"conntrack-udp-timeout-stream", &conntrack.UDPStreamTimeout.Duration,
			effect{field: "conntrack.udpStreamTimeout"},
			"Idle `TIMEOUT` of UDP flows with answers (0: keep the timeout of the node)."},
	})
}

func (c *commandLine) addProcess() {
	o := c.options
	o.Version = "false"
	c.add("Process", []flagSpec{
		{"write-config-to", &o.WriteConfigTo, effect{}, "Write the effective configuration to `FILE` and exit."},
		{"init-only", &o.InitOnly, effect{},
			"Set the conntrack sysctls, which needs full root privileges, and exit. " +
				"After that, kube-proxy can run with CAP_NET_ADMIN only."},
		{"cleanup", &o.Cleanup, effect{},
			"Remove all rules of kube-proxy from this node, log what was removed, and exit."},
		{"feature-gates", cliflag.NewMapStringBool(&o.Configuration.FeatureGates), effect{field: "featureGates"},
			"Feature `GATES` as a comma-separated list of NAME=true|false. Gates that kube-proxy v" +
				KubernetesVersion + " does not have are ignored with a warning. These have an effect: " +
				"ContextualLogging, LoggingAlphaOptions, LoggingBetaOptions, ComponentFlagz, ComponentStatusz, " +
				gateExternalIPs + ", " + gateLocalhostNodePorts + " and the gates of client-go."},
		{"version", &o.Version, effect{},
			"Print the version and exit. --version=raw adds build information, --version=vX.Y.Z reports that " +
				"version."},
	})
	set := c.groups.FlagSet("Process")
	set.Lookup("version").NoOptDefVal = "true"
	set.BoolVarP(&o.Help, "help", "h", false, "Print this help and exit.")
}

// addLogging adds the flags of component-base.
func (c *commandLine) addLogging() {
	logsapi.AddFlags(&c.options.Configuration.Logging, c.groups.FlagSet("Logging"))
	for _, f := range [][2]string{
		{"logging-format", "format"},
		{"log-flush-frequency", "flushFrequency"},
		{"v", "verbosity"},
		{"vmodule", "vmodule"},
		{"log-text-split-stream", "options.text.splitStream"},
		{"log-text-info-buffer-size", "options.text.infoBufferSize"},
		{"log-json-split-stream", "options.json.splitStream"},
		{"log-json-info-buffer-size", "options.json.infoBufferSize"},
	} {
		c.flags = append(c.flags, flagSpec{name: f[0], effect: effect{field: "logging." + f[1], overrides: true}})
	}
}

// addIgnored adds the flags of other modes and of libraries of kube-proxy.
func (c *commandLine) addIgnored() {
	const ipvsOnly, unused = "Applies to ipvs mode only.", "Not used."
	iptables, ipvs := &c.options.Configuration.IPTables, &c.options.Configuration.IPVS
	c.add("Ignored", []flagSpec{
		{"iptables-masquerade-bit", iptables.MasqueradeBit, effect{field: "iptables.masqueradeBit",
			inert: noIPTables + "; set nftables.masqueradeBit in a configuration file"},
			"Applies to iptables and ipvs mode only. Set nftables.masqueradeBit in a configuration file."},
		{"iptables-localhost-nodeports", iptables.LocalhostNodePorts, effect{inert: noLocalhostNodePort},
			"Applies to iptables mode only. In nftables mode, nodeport-addresses selects loopback addresses."},
		{"ipvs-sync-period", ptr.To(defaultSyncPeriod), effect{inert: noIPVS}, ipvsOnly},
		{"ipvs-min-sync-period", ptr.To(defaultIPTablesMinSyncPeriod), effect{inert: noIPVS}, ipvsOnly},
		{"ipvs-scheduler", &ipvs.Scheduler, effect{inert: noIPVS, successor: schedulerSuccessor}, ipvsOnly},
		{"ipvs-exclude-cidrs", &ipvs.ExcludeCIDRs, effect{inert: noIPVS}, ipvsOnly},
		{"ipvs-strict-arp", &ipvs.StrictARP, effect{inert: noIPVS}, ipvsOnly},
		{"ipvs-tcp-timeout", &ipvs.TCPTimeout.Duration, effect{inert: noIPVS}, ipvsOnly},
		{"ipvs-tcpfin-timeout", &ipvs.TCPFinTimeout.Duration, effect{inert: noIPVS}, ipvsOnly},
		{"ipvs-udp-timeout", &ipvs.UDPTimeout.Duration, effect{inert: noIPVS}, ipvsOnly},
		{"boot-id-file", ptr.To("/proc/sys/kernel/random/boot_id"), effect{inert: noID}, unused},
		{"machine-id-file", ptr.To("/etc/machine-id,/var/lib/dbus/machine-id"), effect{inert: noID}, unused},
	})
}

// schedulerSuccessor returns what replaces a scheduler of IPVS that hashes
// addresses, "" for other schedulers.
func schedulerSuccessor(scheduler string) string {
	switch scheduler {
	case "sh", "dh", "mh":
		return "; the annotation " + translate.AnnotationBalance + ": source-hash of a Service selects " +
			"endpoints by the addresses of clients"
	}
	return ""
}
