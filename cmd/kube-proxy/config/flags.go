package config

import (
	"strings"

	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/translate"
)

// newCommandLine declares the flags. Names, types and defaults are as in
// kube-proxy v1.37; only --manifests, --service-metrics, --local-status-pages,
// --max-service-rows, --max-namespace-rows, --reset-stale-connections and
// --hash-table-size are new.
func newCommandLine(o *Options) *commandLine {
	c := &commandLine{options: o}
	c.addSource()
	c.addNode()
	c.addServices()
	c.addServers()
	c.addSystem()
	c.addProcess()
	logsapi.AddFlags(&o.Configuration.Logging, c.group("Logging"))
	c.addIgnored()
	return c
}

func (c *commandLine) addSource() {
	o, client := c.options, &c.options.Configuration.ClientConnection
	set := c.group("Source")
	set.StringVar(&o.ConfigFile, "config", "",
		"Read the configuration from `FILE`, a KubeProxyConfiguration (kubeproxy.config.k8s.io/v1alpha1). "+
			"Other flags are ignored, except --hostname-override, --master, --manifests, --service-metrics, "+
			"--local-status-pages, --max-service-rows, --max-namespace-rows, --reset-stale-connections, "+
			"--hash-table-size and the logging flags. "+
			"If the file changes and is valid, kube-proxy exits for a restart.")
	set.StringVar(&client.Kubeconfig, "kubeconfig", "",
		"Connect to the API server of this kubeconfig `FILE`. "+
			"Without this flag and --master, kube-proxy uses the service account of its pod.")
	set.StringVar(&o.Master, "master", "",
		"`URL` of the API server. It overrides the address in the kubeconfig.")
	set.StringVar(&client.ContentType, "kube-api-content-type", client.ContentType,
		"Content `TYPE` of requests to the API server.")
	set.Float32Var(&client.QPS, "kube-api-qps", client.QPS,
		"Maximum `NUMBER` of requests per second to the API server.")
	set.Int32Var(&client.Burst, "kube-api-burst", client.Burst,
		"`NUMBER` of requests above --kube-api-qps that a burst to the API server may have.")
	set.DurationVar(&o.Configuration.ConfigSyncPeriod.Duration, "config-sync-period",
		o.Configuration.ConfigSyncPeriod.Duration,
		"`INTERVAL` at which all objects of the API server are processed again.")
	set.StringVar(&o.Manifests, "manifests", "",
		"Serve the manifests (*.yaml, *.yml, *.json) in `DIR` instead of an API server: "+
			"Services, EndpointSlices, the Node of this node and ServiceCIDRs. Changes take effect immediately.")
}

func (c *commandLine) addNode() {
	config := c.options.Configuration
	set := c.group("Node")
	set.StringVar(&c.hostnameOverride, "hostname-override", "",
		"`NAME` of this node in the API. Defaults to the host name.")
	set.Var(&text{value: &config.BindAddress, typ: "ip", check: checkIP, keepOnEmpty: true}, "bind-address",
		"`IP` address of this node, instead of the address of its Node object. No server listens on it.")
	set.Var(&text{value: (*string)(&config.DetectLocalMode), typ: "LocalMode"}, "detect-local-mode",
		"`MODE` to detect traffic from pods: ClusterCIDR (default), NodeCIDR (spec.podCIDRs of the Node), "+
			"BridgeInterface or InterfaceNamePrefix.")
	set.StringVar(&c.clusterCIDR, "cluster-cidr", "",
		"`CIDR` of all pods of the cluster, or two separated by a comma, one per IP family, for mode ClusterCIDR. "+
			"Traffic to ClusterIPs from other sources is masqueraded.")
	set.StringVar(&config.DetectLocal.BridgeInterface, "pod-bridge-interface", "",
		"`NAME` of the bridge that connects the pods of this node, for mode BridgeInterface.")
	set.StringVar(&config.DetectLocal.InterfaceNamePrefix, "pod-interface-name-prefix", "",
		"`PREFIX` of the interface names of pods on this node, for mode InterfaceNamePrefix.")
}

func (c *commandLine) addServices() {
	config, rules := c.options.Configuration, &c.options.Rules
	set := c.group("Services")
	set.Var(&text{value: (*string)(&config.Mode), typ: "ProxyMode"}, "proxy-mode",
		"Proxy `MODE`. The only supported mode is nftables, which is the default.")
	set.BoolVar(&config.NFTables.MasqueradeAll, "masquerade-all", false,
		"Masquerade all traffic to ClusterIPs.")
	set.StringSliceVar(&config.NodePortAddresses, "nodeport-addresses", nil,
		"Accept NodePort connections on these `ADDRESSES`, a comma-separated list of CIDRs of local addresses and the "+
			"keywords primary (the addresses of the Node object, the default), localhost (127.0.0.0/8 and ::1/128) "+
			"and all (0.0.0.0/0 and ::/0). A list without an address of one IP family does not restrict that family. "+
			"On 127.0.0.1 and ::1, TCP NodePorts listen only if the list includes localhost or a loopback CIDR, and "+
			"the "+
			"feature gate "+gateLocalhostNodePorts+" is enabled.")
	set.DurationVar(&config.NFTables.SyncPeriod.Duration, "iptables-sync-period", defaultSyncPeriod,
		"`INTERVAL` at which failed updates are retried. Despite its name, it applies to nftables mode.")
	set.DurationVar(&config.NFTables.MinSyncPeriod.Duration, "iptables-min-sync-period", defaultMinSyncPeriod,
		"Minimum `INTERVAL` between rule updates (0: no limit). Despite its name, it applies to nftables mode.")
	set.IntVar(&rules.Budgets.Service, "max-service-rows", ruleset.DefaultServiceRows,
		"Limit the rules of a Service to this `NUMBER` of rows in each address family. "+
			"A Service that needs more is served with fewer endpoints, external IPs and source ranges.")
	set.IntVar(&rules.Budgets.Namespace, "max-namespace-rows", ruleset.DefaultNamespaceRows,
		"Limit the rules of all Services of a namespace to this `NUMBER` of rows in each address family. "+
			"The oldest Services get them first.")
	set.BoolVar(&rules.ResetStaleConnections, "reset-stale-connections", false,
		"Reset TCP and SCTP connections to an endpoint that is gone: it was last seen terminating, or neither ready "+
			"nor serving, and has been in no EndpointSlice for half a second.")
	set.IntVar(&rules.HashTableSize, "hash-table-size", cluster.DefaultHashTableSize,
		"`NUMBER` of rows of the tables of Services with the annotation "+translate.AnnotationBalance+
			" or with weights, unless "+translate.AnnotationHashTableSize+" sets it. Must be the same on all nodes.")
}

func (c *commandLine) addServers() {
	config := c.options.Configuration
	set := c.group("Servers")
	healthz := &text{value: &config.HealthzBindAddress, typ: "ipport", check: checkIPPort, keepOnEmpty: true}
	set.Var(healthz, "healthz-bind-address", "Serve /healthz and /livez on `IP:PORT`.")
	metrics := &text{value: &config.MetricsBindAddress, typ: "ipport", check: checkIPPort}
	set.Var(metrics, "metrics-bind-address",
		"Serve /metrics, /configz and /proxyMode on `IP:PORT`. An empty value disables the server.")
	counted := (*string)(&c.options.Rules.ServiceMetrics)
	set.Var(&text{value: counted, typ: "string", check: checkServiceMetrics, keepOnEmpty: true}, "service-metrics",
		"Count new connections to these `SERVICES`: off, annotated (those with the annotation "+
			translate.AnnotationMetrics+`: "true"), or all. The metric is nftproxy_service_connections_total.`)
	set.BoolVar(&c.options.LocalStatusPages, "local-status-pages", false,
		"Serve the pages of --metrics-bind-address only to clients on a loopback address, except /metrics and "+
			"/healthz.")
	set.BoolVar(&config.BindAddressHardFail, "bind-address-hard-fail", false,
		"Exit if one of these ports is in use. By default kube-proxy retries.")
	set.BoolVar(&config.EnableProfiling, "profiling", false,
		"Serve /debug/pprof and /debug/flags/v on --metrics-bind-address.")
	set.StringVar(&config.ShowHiddenMetricsForVersion, "show-hidden-metrics-for-version", "",
		"Show the metrics that were hidden after this `VERSION`. Supported versions are "+
			strings.Join(previousVersions, ", ")+".")
	set.Int32Var(&c.healthzPort, "healthz-port", defaultHealthzPort,
		"`PORT` if --healthz-bind-address has none. 0 disables the server.")
	set.Int32Var(&c.metricsPort, "metrics-port", defaultMetricsPort,
		"`PORT` if --metrics-bind-address has none. 0 disables the server.")
	set.Lookup("healthz-port").Hidden = true
	set.Lookup("metrics-port").Hidden = true
}

func (c *commandLine) addSystem() {
	config := c.options.Configuration
	conntrack := &config.Conntrack
	set := c.group("System")
	set.Int32Var(config.OOMScoreAdj, "oom-score-adj", *config.OOMScoreAdj,
		"OOM `SCORE` adjustment of this process, from -1000 to 1000.")
	set.Int32Var(conntrack.MaxPerCore, "conntrack-max-per-core", *conntrack.MaxPerCore,
		"Maximum `NUMBER` of tracked connections per CPU core "+
			"(0: keep the limit of the node and ignore --conntrack-min).")
	set.Int32Var(conntrack.Min, "conntrack-min", *conntrack.Min,
		"Lower bound for the maximum `NUMBER` of tracked connections on nodes with few CPU cores.")
	set.DurationVar(&conntrack.TCPEstablishedTimeout.Duration, "conntrack-tcp-timeout-established",
		conntrack.TCPEstablishedTimeout.Duration,
		"Idle `TIMEOUT` of established TCP connections (0: keep the timeout of the node).")
	set.DurationVar(&conntrack.TCPCloseWaitTimeout.Duration, "conntrack-tcp-timeout-close-wait",
		conntrack.TCPCloseWaitTimeout.Duration,
		"Idle `TIMEOUT` of TCP connections in CLOSE_WAIT (0: keep the timeout of the node).")
	set.BoolVar(&conntrack.TCPBeLiberal, "conntrack-tcp-be-liberal", false,
		"Accept TCP packets outside the TCP window (sysctl nf_conntrack_tcp_be_liberal).")
	set.DurationVar(&conntrack.UDPTimeout.Duration, "conntrack-udp-timeout", 0,
		"Idle `TIMEOUT` of UDP flows without an answer (0: keep the timeout of the node).")
	set.DurationVar(&conntrack.UDPStreamTimeout.Duration, "conntrack-udp-timeout-stream", 0,
		"Idle `TIMEOUT` of UDP flows with answers (0: keep the timeout of the node).")
}

func (c *commandLine) addProcess() {
	o := c.options
	set := c.group("Process")
	set.StringVar(&o.WriteConfigTo, "write-config-to", "",
		"Write the effective configuration to `FILE` and exit.")
	set.BoolVar(&o.InitOnly, "init-only", false,
		"Set the conntrack sysctls, which needs full root privileges, and exit. "+
			"After that, kube-proxy can run with CAP_NET_ADMIN only.")
	set.BoolVar(&o.Cleanup, "cleanup", false,
		"Remove all rules of kube-proxy from this node, log what was removed, and exit.")
	set.Var(cliflag.NewMapStringBool(&o.Configuration.FeatureGates), "feature-gates",
		"Feature `GATES` as a comma-separated list of NAME=true|false. Gates that kube-proxy "+
			"v"+KubernetesVersion+" does not have are ignored with a warning. These have an effect: "+
			"ContextualLogging, "+
			"LoggingAlphaOptions, LoggingBetaOptions, ComponentFlagz, ComponentStatusz, AllowServiceExternalIPs, "+
			gateLocalhostNodePorts+" and the gates of client-go.")
	set.Var(&version{o}, "version",
		"Print the version and exit. --version=raw adds build information, --version=vX.Y.Z reports that version.")
	set.Lookup("version").NoOptDefVal = "true"
	set.BoolVarP(&o.Help, "help", "h", false, "Print this help and exit.")
}

// addIgnored declares the flags of other modes and of libraries of
// kube-proxy.
func (c *commandLine) addIgnored() {
	const ipvsOnly, unused = "Applies to ipvs mode only.", "Not used."
	iptables, ipvs := &c.options.Configuration.IPTables, &c.options.Configuration.IPVS
	set := c.group("Ignored")
	set.Int32Var(iptables.MasqueradeBit, "iptables-masquerade-bit", *iptables.MasqueradeBit,
		"Applies to iptables and ipvs mode only. Set nftables.masqueradeBit in a configuration file.")
	set.BoolVar(iptables.LocalhostNodePorts, "iptables-localhost-nodeports", true,
		"Applies to iptables mode only. In nftables mode, nodeport-addresses selects loopback addresses.")
	set.DurationVar(&c.ipvsSyncPeriod, "ipvs-sync-period", defaultSyncPeriod, ipvsOnly)
	set.DurationVar(&c.ipvsMinSyncPeriod, "ipvs-min-sync-period", defaultIPTablesMinSyncPeriod, ipvsOnly)
	set.StringVar(&ipvs.Scheduler, "ipvs-scheduler", "", ipvsOnly)
	set.StringSliceVar(&ipvs.ExcludeCIDRs, "ipvs-exclude-cidrs", nil, ipvsOnly)
	set.BoolVar(&ipvs.StrictARP, "ipvs-strict-arp", false, ipvsOnly)
	set.DurationVar(&ipvs.TCPTimeout.Duration, "ipvs-tcp-timeout", 0, ipvsOnly)
	set.DurationVar(&ipvs.TCPFinTimeout.Duration, "ipvs-tcpfin-timeout", 0, ipvsOnly)
	set.DurationVar(&ipvs.UDPTimeout.Duration, "ipvs-udp-timeout", 0, ipvsOnly)
	set.StringVar(&c.bootIDFile, "boot-id-file", "/proc/sys/kernel/random/boot_id", unused)
	set.StringVar(&c.machineIDFile, "machine-id-file", "/etc/machine-id,/var/lib/dbus/machine-id", unused)
}
