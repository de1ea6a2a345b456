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

// defaultMinSyncPeriod is the default of nftables.minSyncPeriod. kube-proxy's
// default is 1 s, because each of its syncs runs nft and can take seconds.
// The cost of our syncs depends on the change, and the proxier pauses after a
// sync in proportion to its duration.
const defaultMinSyncPeriod = time.Millisecond

// Defaults of kube-proxy v1.36 and v1.37.
const (
	modeNFTables    = "nftables"
	modeClusterCIDR = "ClusterCIDR"

	// Keywords of nodePortAddresses.
	nodePortPrimary   = "primary"   // the addresses of the Node object
	nodePortLocalhost = "localhost" // 127.0.0.0/8 and ::1/128
	nodePortAll       = "all"       // 0.0.0.0/0 and ::/0

	defaultHealthzPort           = 10256
	defaultMetricsPort           = 10249
	defaultSyncPeriod            = 30 * time.Second
	defaultIPTablesMinSyncPeriod = time.Second
	defaultMasqueradeBit         = 14
	defaultOOMScoreAdj           = -999
)

// setDefaults sets kube-proxy's default in every unset field, except
// nftables.minSyncPeriod.
func setDefaults(c *v1alpha1.KubeProxyConfiguration) {
	c.SetGroupVersionKind(v1alpha1.SchemeGroupVersion.WithKind(kind))
	setAddressDefaults(c)
	setConntrackDefaults(&c.Conntrack)
	setIfNil(&c.OOMScoreAdj, defaultOOMScoreAdj)
	setIfNil(&c.IPTables.MasqueradeBit, defaultMasqueradeBit)
	setIfNil(&c.IPTables.LocalhostNodePorts, true)
	setIfZero(&c.IPTables.SyncPeriod.Duration, defaultSyncPeriod)
	setIfZero(&c.IPTables.MinSyncPeriod.Duration, defaultIPTablesMinSyncPeriod)
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

// setAddressDefaults sets the addresses of the servers, in the IP family of
// bindAddress.
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

// withPort appends port to an IP address without one. It returns anything
// else unchanged, for the validation.
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

// setMode sets the fields that are implied by nftables mode. As kube-proxy
// does on /configz, it clears the fields of other modes that duplicate a
// field of this mode.
func setMode(c *v1alpha1.KubeProxyConfiguration) {
	c.Mode = modeNFTables
	setIfZero(&c.DetectLocalMode, modeClusterCIDR)
	if len(c.NodePortAddresses) == 0 {
		c.NodePortAddresses = []string{nodePortPrimary}
	}
	none := metav1.Duration{}
	c.IPTables.MasqueradeAll = false
	c.IPTables.SyncPeriod, c.IPTables.MinSyncPeriod = none, none
	c.IPVS.SyncPeriod, c.IPVS.MinSyncPeriod = none, none
	c.PortRange = ""
}
