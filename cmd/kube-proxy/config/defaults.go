package config

import (
	"net"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	netutils "k8s.io/utils/net"
	"k8s.io/utils/ptr"
)

// DefaultMinSyncPeriod is the least time from one sync to the next where the configuration names none (nftables.minSyncPeriod 0).
// kube-proxy has 1 s, since each of its syncs runs nft and can cost seconds; one of ours costs what changed, and the proxier rests in
// proportion to what a sync took.
const DefaultMinSyncPeriod = time.Millisecond

// Defaults of kube-proxy v1.36.
const (
	modeNFTables    = "nftables"
	modeClusterCIDR = "ClusterCIDR"
	primary         = "primary" // nodePortAddresses: those of the Node object

	defaultHealthzPort   = 10256
	defaultMetricsPort   = 10249
	defaultSyncPeriod    = 30 * time.Second
	defaultMinSyncPeriod = time.Second // of the iptables mode
	defaultMasqueradeBit = 14
	defaultOOMScoreAdj   = -999
)

// setDefaults gives every field that is not set kube-proxy's default, except nftables.minSyncPeriod.
func setDefaults(c *v1alpha1.KubeProxyConfiguration) {
	c.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
	setAddressDefaults(c)
	setConntrackDefaults(&c.Conntrack)
	setIfNil(&c.OOMScoreAdj, defaultOOMScoreAdj)
	setIfNil(&c.IPTables.MasqueradeBit, defaultMasqueradeBit)
	setIfNil(&c.IPTables.LocalhostNodePorts, true)
	setIfZero(&c.IPTables.SyncPeriod.Duration, defaultSyncPeriod)
	setIfZero(&c.IPTables.MinSyncPeriod.Duration, defaultMinSyncPeriod)
	setIfZero(&c.IPVS.SyncPeriod.Duration, defaultSyncPeriod)
	setIfNil(&c.NFTables.MasqueradeBit, defaultMasqueradeBit)
	setIfZero(&c.NFTables.SyncPeriod.Duration, defaultSyncPeriod)
	setIfZero(&c.ConfigSyncPeriod.Duration, 15*time.Minute)
	setIfZero(&c.ClientConnection.ContentType, "application/vnd.kubernetes.protobuf")
	setIfZero(&c.ClientConnection.QPS, 5)
	setIfZero(&c.ClientConnection.Burst, 10)
	if c.FeatureGates == nil {
		c.FeatureGates = make(map[string]bool)
	}
	logsapi.SetRecommendedLoggingConfiguration(&c.Logging)
}

// setAddressDefaults has the servers listen on addresses of bindAddress's family.
func setAddressDefaults(c *v1alpha1.KubeProxyConfiguration) {
	setIfZero(&c.BindAddress, "0.0.0.0")
	all, loopback := "::", "::1"
	if netutils.ParseIPSloppy(c.BindAddress).To4() != nil {
		all, loopback = "0.0.0.0", "127.0.0.1"
	}
	setIfZero(&c.HealthzBindAddress, all)
	setIfZero(&c.MetricsBindAddress, loopback)
	c.HealthzBindAddress = withPort(c.HealthzBindAddress, defaultHealthzPort)
	c.MetricsBindAddress = withPort(c.MetricsBindAddress, defaultMetricsPort)
}

func setConntrackDefaults(c *v1alpha1.KubeProxyConntrackConfiguration) {
	setIfNil(&c.MaxPerCore, 32*1024)
	setIfNil(&c.Min, 128*1024)
	setIfNil(&c.TCPEstablishedTimeout, metav1.Duration{Duration: 24 * time.Hour})
	setIfNil(&c.TCPCloseWaitTimeout, metav1.Duration{Duration: time.Hour})
}

// withPort appends a port to an address that has none. What is no address is left to the validation.
func withPort(addr string, port int32) string {
	if _, _, err := net.SplitHostPort(addr); err == nil || netutils.ParseIPSloppy(addr) == nil {
		return addr
	}
	return net.JoinHostPort(addr, strconv.Itoa(int(port)))
}

func setIfZero[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

func setIfNil[T any](field **T, value T) {
	if *field == nil {
		*field = ptr.To(value)
	}
}

// keepMode makes explicit what nftables mode means, and leaves of the other modes' sections what kube-proxy leaves of them: fields
// that all modes share are shown where this mode has them only.
func keepMode(c *v1alpha1.KubeProxyConfiguration) {
	c.Mode = modeNFTables
	if c.DetectLocalMode == "" {
		c.DetectLocalMode = modeClusterCIDR
	}
	if len(c.NodePortAddresses) == 0 {
		c.NodePortAddresses = []string{primary}
	}
	none := metav1.Duration{}
	c.IPTables.MasqueradeAll = false
	c.IPTables.SyncPeriod, c.IPTables.MinSyncPeriod = none, none
	c.IPVS.SyncPeriod, c.IPVS.MinSyncPeriod = none, none
	c.PortRange = ""
}
