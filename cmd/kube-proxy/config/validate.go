package config

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"github.com/nftproxy/nftproxy/proxier/translate"
)

// validator collects the errors of a configuration. An error is a line that
// begins with the flag, or the file and the field, that holds the value.
type validator struct {
	origin func(field string) string
	inFile bool // reports whether the configuration comes from a file
	errs   []error
}

// bad adds an error of a field.
func (v *validator) bad(field, format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf("%s: %s", v.origin(field), fmt.Sprintf(format, args...)))
}

// validate checks a configuration with defaults, as kube-proxy does in nftables
// mode.
func (v *validator) validate(c *v1alpha1.KubeProxyConfiguration, gate featuregate.FeatureGate) {
	v.mode(string(c.Mode))
	v.inRange("iptables.masqueradeBit", c.IPTables.MasqueradeBit, 0, 31)
	v.inRange("nftables.masqueradeBit", c.NFTables.MasqueradeBit, 0, 31)
	v.periods(c)
	notNegative(v, "conntrack.maxPerCore", *c.Conntrack.MaxPerCore)
	notNegative(v, "conntrack.min", *c.Conntrack.Min)
	notNegative(v, "conntrack.tcpEstablishedTimeout", c.Conntrack.TCPEstablishedTimeout.Duration)
	notNegative(v, "conntrack.tcpCloseWaitTimeout", c.Conntrack.TCPCloseWaitTimeout.Duration)
	notNegative(v, "conntrack.udpTimeout", c.Conntrack.UDPTimeout.Duration)
	notNegative(v, "conntrack.udpStreamTimeout", c.Conntrack.UDPStreamTimeout.Duration)
	v.inRange("oomScoreAdj", c.OOMScoreAdj, -1000, 1000)
	notNegative(v, "clientConnection.burst", c.ClientConnection.Burst)
	v.bindAddress(c.BindAddress)
	v.server("healthzBindAddress", c.HealthzBindAddress)
	v.server("metricsBindAddress", c.MetricsBindAddress)
	v.nodePortAddresses(c.NodePortAddresses)
	if s := c.ShowHiddenMetricsForVersion; s != "" && !slices.Contains(previousVersions, s) {
		v.bad("showHiddenMetricsForVersion", "%q is not supported: supported values are %s", s,
			strings.Join(previousVersions, ", "))
	}
	v.detectLocal(c)
	v.nodeName(c.HostnameOverride)
	for _, err := range logsapi.Validate(&c.Logging, gate, field.NewPath("logging")) {
		v.bad(err.Field, "%s", oneLine(fmt.Errorf("%s", err.ErrorBody())))
	}
}

// previousVersions are the values of showHiddenMetricsForVersion that one of
// kube-proxy v1.33 to v1.37 accepts: each accepts its previous version only.
var previousVersions = []string{"1.32", "1.33", "1.34", "1.35", "1.36"}

func (v *validator) inRange(field string, value *int32, from, to int32) {
	if value != nil && (*value < from || *value > to) {
		v.bad(field, "%d is not in the range from %d to %d", *value, from, to)
	}
}

// modeRemedy sets the mode in a cluster of kubeadm, which writes mode iptables
// explicitly since v1.37.
const modeRemedy = "; on a kubeadm cluster, set it with " +
	"\"kubectl -n kube-system get configmap kube-proxy -o yaml | sed 's/ mode: .*/ mode: nftables/' | " +
	"kubectl replace -f -\" and then run \"kubectl -n kube-system rollout restart daemonset/kube-proxy\""

func (v *validator) mode(mode string) {
	if mode != "" && mode != modeNFTables {
		remedy := ""
		if v.inFile {
			remedy = modeRemedy
		}
		v.bad("mode", "%q is not supported: nftproxy supports %s only%s", mode, modeNFTables, remedy)
	}
}

func (v *validator) periods(c *v1alpha1.KubeProxyConfiguration) {
	period, minimum := c.NFTables.SyncPeriod.Duration, c.NFTables.MinSyncPeriod.Duration
	if c.ConfigSyncPeriod.Duration <= 0 {
		v.bad("configSyncPeriod", "%v is not greater than 0", c.ConfigSyncPeriod.Duration)
	}
	if period <= 0 {
		v.bad("nftables.syncPeriod", "%v is not greater than 0", period)
	}
	notNegative(v, "nftables.minSyncPeriod", minimum)
	if minimum > period && period > 0 {
		v.bad("nftables.minSyncPeriod", "%v is greater than the sync period, %v", minimum, period)
	}
}

func notNegative[T int32 | time.Duration](v *validator, field string, value T) {
	if value < 0 {
		v.bad(field, "%v is less than 0", value)
	}
}

func (v *validator) bindAddress(s string) {
	ip, err := parseAddress(s)
	if err != nil {
		v.bad("bindAddress", "%v", err)
	} else if ip.IsMulticast() {
		v.bad("bindAddress", "%v is a multicast address", ip)
	}
}

// server validates the address of an HTTP server. An empty one disables the
// server.
func (v *validator) server(field, s string) {
	if s == "" {
		return
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		v.bad(field, "%q is not of the form IP:PORT", s)
		return
	}
	if _, err := parseAddress(host); err != nil {
		v.bad(field, "%q: %v", s, err)
	}
	if p, err := strconv.Atoi(port); err != nil || p < 1 || p > 65535 {
		v.bad(field, "%q: the port is not in the range from 1 to 65535", s)
	}
}

func (v *validator) nodePortAddresses(values []string) {
	for i, s := range values {
		if _, err := parseNodePortAddresses([]string{s}); err != nil {
			v.bad(fmt.Sprintf("nodePortAddresses[%d]", i), "%v", err)
		}
	}
}

func (v *validator) detectLocal(c *v1alpha1.KubeProxyConfiguration) {
	modes := []string{modeClusterCIDR, "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"}
	switch mode := string(c.DetectLocalMode); {
	case mode == "" || mode == modeClusterCIDR:
		v.clusterCIDRs(c.ClusterCIDR)
	case !slices.Contains(modes, mode):
		v.bad("detectLocalMode", "%q is not supported: supported values are %s", mode, strings.Join(modes, ", "))
	case mode == "BridgeInterface":
		v.interfaceName("detectLocal.bridgeInterface", c.DetectLocal.BridgeInterface)
	case mode == "InterfaceNamePrefix":
		v.interfaceName("detectLocal.interfaceNamePrefix", c.DetectLocal.InterfaceNamePrefix)
	}
	if string(c.DetectLocalMode) == "NodeCIDR" {
		v.notWithNodeCIDR("detectLocal.bridgeInterface", c.DetectLocal.BridgeInterface, "BridgeInterface")
		v.notWithNodeCIDR("detectLocal.interfaceNamePrefix", c.DetectLocal.InterfaceNamePrefix, "InterfaceNamePrefix")
	}
}

// notWithNodeCIDR reports a field of another detectLocalMode, which kube-proxy
// ignores.
func (v *validator) notWithNodeCIDR(field, value, mode string) {
	if value != "" {
		v.bad(field, "%q has no effect with %s NodeCIDR: set the mode to %s, or remove the interface", value,
			v.origin("detectLocalMode"), mode)
	}
}

// interfaceName validates the name, or a prefix of the name, of an interface.
// The kernel allows 15 bytes (IFNAMSIZ).
func (v *validator) interfaceName(field, name string) {
	switch {
	case name == "":
		v.bad(field, "must not be empty with this detectLocalMode")
	case len(name) > 15 || strings.ContainsAny(name, "/ \t\n\"*"):
		v.bad(field, "%q is not a valid interface name", name)
	}
}

// nodeName validates hostnameOverride.
func (v *validator) nodeName(s string) {
	problems := validation.IsDNS1123Subdomain(canonicalName(s))
	switch {
	case s == "":
	case canonicalName(s) == "":
		v.bad("hostnameOverride", "%q is blank: set the node's name or leave it empty", s)
	case len(problems) > 0:
		v.bad("hostnameOverride", "%q is not the name of a Node: %s", s, problems[0])
	}
}

func (v *validator) clusterCIDRs(s string) {
	if s == "" {
		return
	}
	list := strings.Split(s, ",")
	if len(list) > 2 {
		v.bad("clusterCIDR", "%q has more than one CIDR per IP family", s)
		return
	}
	var families []bool
	for _, c := range list {
		p, err := translate.ParsePrefix(c)
		if err != nil {
			v.bad("clusterCIDR", "%v", err)
			return
		}
		families = append(families, p.Addr().Is4())
	}
	if len(families) == 2 && families[0] == families[1] {
		v.bad("clusterCIDR", "%q has two CIDRs of the same IP family", s)
	}
}
