package config

import (
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// newCommandLine declares the flags. Names, types and defaults are those of kube-proxy v1.36; --manifests is ours.
func newCommandLine(o *Options) *commandLine {
	c := &commandLine{options: o}
	c.addSource()
	c.addNode()
	c.addServices()
	c.addServers()
	c.addSystem()
	c.addProcess()
	logsapi.AddFlags(&o.Configuration.Logging, c.group("Logging"))
	c.addWithoutEffect()
	return c
}

func (c *commandLine) addSource() {
	o, client := c.options, &c.options.Configuration.ClientConnection
	set := c.group("Source")
	set.StringVar(&o.ConfigFile, "config", "",
		"`FILE` with the configuration (kubeproxy.config.k8s.io/v1alpha1 KubeProxyConfiguration). With it only --hostname-override, --master, "+
			"--manifests and the logging flags count besides. When it changes, and still loads, kube-proxy exits, to be restarted.")
	set.StringVar(&client.Kubeconfig, "kubeconfig", "",
		"`FILE` that says how to reach the API server. Without it and --master: the Pod's service account.")
	set.StringVar(&o.Master, "master", "", "`URL` of the API server, in place of the one in the kubeconfig.")
	set.StringVar(&client.ContentType, "kube-api-content-type", client.ContentType, "`TYPE` of the content of requests to the API server.")
	set.Float32Var(&client.QPS, "kube-api-qps", client.QPS, "`NUMBER` of requests a second to the API server.")
	set.Int32Var(&client.Burst, "kube-api-burst", client.Burst, "`NUMBER` of requests that may exceed --kube-api-qps for a moment.")
	set.DurationVar(&o.Configuration.ConfigSyncPeriod.Duration, "config-sync-period", o.Configuration.ConfigSyncPeriod.Duration,
		"`PERIOD` after which everything known from the API server is gone through again.")
	set.StringVar(&o.Manifests, "manifests", "",
		"`DIR` with manifests (*.yaml, *.yml, *.json) of Services, EndpointSlices, this Node and ServiceCIDRs to serve in place of an API server's. "+
			"It is watched: changes are applied at once.")
}

func (c *commandLine) addNode() {
	config := c.options.Configuration
	set := c.group("Node")
	set.StringVar(&c.hostnameOverride, "hostname-override", "",
		"`NAME` of this node, by which EndpointSlices and the Node object refer to it. Default: the host name.")
	set.Var(&text{value: &config.BindAddress, typ: "ip", check: checkIP, keepOnEmpty: true}, "bind-address",
		"`IP` of this node to use in place of its Node object's. Nothing listens on it.")
	set.Var(&text{value: (*string)(&config.DetectLocalMode), typ: "LocalMode"}, "detect-local-mode",
		"`MODE` of telling this cluster's pods from other clients: ClusterCIDR (the default), NodeCIDR (spec.podCIDRs of this Node), "+
			"BridgeInterface or InterfaceNamePrefix.")
	set.StringVar(&c.clusterCIDR, "cluster-cidr", "",
		"`CIDR` of all pods, one a family, separated by a comma, for mode ClusterCIDR. Traffic from elsewhere to ClusterIPs is masqueraded.")
	set.StringVar(&config.DetectLocal.BridgeInterface, "pod-bridge-interface", "",
		"`NAME` of the bridge that this node's pods are connected to, for mode BridgeInterface.")
	set.StringVar(&config.DetectLocal.InterfaceNamePrefix, "pod-interface-name-prefix", "",
		"`PREFIX` of the names of this node's pod interfaces, for mode InterfaceNamePrefix.")
}

func (c *commandLine) addServices() {
	config := c.options.Configuration
	set := c.group("Services")
	set.Var(&text{value: (*string)(&config.Mode), typ: "ProxyMode"}, "proxy-mode", "`MODE` of proxying: nftables, which is the default. There is no other.")
	set.BoolVar(&config.NFTables.MasqueradeAll, "masquerade-all", false, "Masquerade all traffic to ClusterIPs.")
	set.StringSliceVar(&config.NodePortAddresses, "nodeport-addresses", nil,
		"`CIDRS` of the local addresses on which NodePorts listen (0.0.0.0/0 and ::/0: all but loopback), or primary: the addresses of the Node object. "+
			"CIDRs of one family leave the other on all its addresses. Default: primary.")
	set.DurationVar(&config.NFTables.SyncPeriod.Duration, "iptables-sync-period", defaultSyncPeriod,
		"`PERIOD` after which rules are checked, and what failed is tried again, though nothing changed. In spite of its name it counts in nftables mode.")
	set.DurationVar(&config.NFTables.MinSyncPeriod.Duration, "iptables-min-sync-period", DefaultMinSyncPeriod,
		"`PERIOD` that passes at least between two writings of rules. 0: none. In spite of its name it counts in nftables mode.")
}

func (c *commandLine) addServers() {
	config := c.options.Configuration
	set := c.group("Servers")
	set.Var(&text{value: &config.HealthzBindAddress, typ: "ipport", check: checkIPPort, keepOnEmpty: true}, "healthz-bind-address",
		"`IP:PORT` of the server of /healthz and /livez.")
	set.Var(&text{value: &config.MetricsBindAddress, typ: "ipport", check: checkIPPort}, "metrics-bind-address",
		"`IP:PORT` of the server of /metrics, /configz and /proxyMode. Empty: none.")
	set.BoolVar(&config.BindAddressHardFail, "bind-address-hard-fail", false, "Exit when one of these ports is taken, in place of trying again.")
	set.BoolVar(&config.EnableProfiling, "profiling", false, "Serve /debug/pprof and /debug/flags/v with the metrics.")
	set.StringVar(&config.ShowHiddenMetricsForVersion, "show-hidden-metrics-for-version", "",
		"`VERSION` "+previousVersion+": show the metrics that were hidden since.")
	set.Int32Var(&c.healthzPort, "healthz-port", defaultHealthzPort, "`PORT` for a --healthz-bind-address without one. 0: no server.")
	set.Int32Var(&c.metricsPort, "metrics-port", defaultMetricsPort, "`PORT` for a --metrics-bind-address without one. 0: no server.")
	set.Lookup("healthz-port").Hidden = true
	set.Lookup("metrics-port").Hidden = true
}

func (c *commandLine) addSystem() {
	config := c.options.Configuration
	conntrack := &config.Conntrack
	set := c.group("System")
	set.Int32Var(config.OOMScoreAdj, "oom-score-adj", *config.OOMScoreAdj, "`SCORE` of this process when memory is short, -1000 to 1000.")
	set.Int32Var(conntrack.MaxPerCore, "conntrack-max-per-core", *conntrack.MaxPerCore,
		"`NUMBER` of connections tracked at most, for each CPU. 0: leave the limit as it is, and ignore --conntrack-min.")
	set.Int32Var(conntrack.Min, "conntrack-min", *conntrack.Min, "`NUMBER` of connections that the limit is at least, however few CPUs there are.")
	set.DurationVar(&conntrack.TCPEstablishedTimeout.Duration, "conntrack-tcp-timeout-established", conntrack.TCPEstablishedTimeout.Duration,
		"`TIME` after which an idle TCP connection is forgotten. 0: leave it as it is.")
	set.DurationVar(&conntrack.TCPCloseWaitTimeout.Duration, "conntrack-tcp-timeout-close-wait", conntrack.TCPCloseWaitTimeout.Duration,
		"`TIME` after which an idle TCP connection in CLOSE_WAIT is forgotten. 0: leave it as it is.")
	set.BoolVar(&conntrack.TCPBeLiberal, "conntrack-tcp-be-liberal", false, "Track TCP packets outside the window too (nf_conntrack_tcp_be_liberal).")
	set.DurationVar(&conntrack.UDPTimeout.Duration, "conntrack-udp-timeout", 0,
		"`TIME` after which an idle UDP flow without answer is forgotten. 0: leave it as it is.")
	set.DurationVar(&conntrack.UDPStreamTimeout.Duration, "conntrack-udp-timeout-stream", 0,
		"`TIME` after which an idle UDP flow with answers is forgotten. 0: leave it as it is.")
}

func (c *commandLine) addProcess() {
	o := c.options
	set := c.group("Process")
	set.StringVar(&o.WriteConfigTo, "write-config-to", "", "`FILE` to write the resulting configuration to, and exit.")
	set.BoolVar(&o.InitOnly, "init-only", false, "Do what needs root privileges and exit. After it, CAP_NET_ADMIN is enough.")
	set.BoolVar(&o.Cleanup, "cleanup", false, "Remove what kube-proxy left on this node, say what that was, and exit.")
	set.Var(cliflag.NewMapStringBool(&o.Configuration.FeatureGates), "feature-gates",
		"`GATES` as name=true|false, separated by commas. All names of kube-proxy v1.36 are known. Those of logging (ContextualLogging, LoggingAlphaOptions, "+
			"LoggingBetaOptions), of the status pages (ComponentFlagz, ComponentStatusz) and of the API client have an effect here.")
	set.Var(&version{o}, "version", "Print the version and exit; --version=raw: all that is known of it; --version=vX.Y.Z: report this version.")
	set.Lookup("version").NoOptDefVal = "true"
	set.BoolVarP(&o.Help, "help", "h", false, "Print this text and exit.")
}

// addWithoutEffect declares the flags that belong to other modes of kube-proxy, or to libraries of it.
func (c *commandLine) addWithoutEffect() {
	iptables, ipvs := &c.options.Configuration.IPTables, &c.options.Configuration.IPVS
	set := c.group("Accepted, without effect")
	set.Int32Var(iptables.MasqueradeBit, "iptables-masquerade-bit", *iptables.MasqueradeBit, "For iptables and ipvs mode. In a file: nftables.masqueradeBit.")
	set.BoolVar(iptables.LocalhostNodePorts, "iptables-localhost-nodeports", true, "For iptables mode. NodePorts never listen on loopback addresses.")
	set.DurationVar(&c.ipvsSyncPeriod, "ipvs-sync-period", defaultSyncPeriod, "For ipvs mode.")
	set.DurationVar(&c.ipvsMinSyncPeriod, "ipvs-min-sync-period", defaultMinSyncPeriod, "For ipvs mode.")
	set.StringVar(&ipvs.Scheduler, "ipvs-scheduler", "", "For ipvs mode.")
	set.StringSliceVar(&ipvs.ExcludeCIDRs, "ipvs-exclude-cidrs", nil, "For ipvs mode.")
	set.BoolVar(&ipvs.StrictARP, "ipvs-strict-arp", false, "For ipvs mode.")
	set.DurationVar(&ipvs.TCPTimeout.Duration, "ipvs-tcp-timeout", 0, "For ipvs mode.")
	set.DurationVar(&ipvs.TCPFinTimeout.Duration, "ipvs-tcpfin-timeout", 0, "For ipvs mode.")
	set.DurationVar(&ipvs.UDPTimeout.Duration, "ipvs-udp-timeout", 0, "For ipvs mode.")
	set.StringVar(&c.bootIDFile, "boot-id-file", "/proc/sys/kernel/random/boot_id", "Not read.")
	set.StringVar(&c.machineIDFile, "machine-id-file", "/etc/machine-id,/var/lib/dbus/machine-id", "Not read.")
}
