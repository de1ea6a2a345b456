package answer

import (
	"context"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
	"github.com/nftproxy/nftproxy/proxier/manifest"
)

// Status asks for the status of the proxy.
var Status = socket.Plain[ProxyStatus]("/v1/status")

// ProxyStatus describes a running proxy.
type ProxyStatus struct {
	Version string `json:"version"`
	proxier.Status
	// API is nil if the proxy serves manifests.
	API *apiclient.ContactState `json:"api,omitempty"`
	// Manifests is nil if the proxy serves an API server.
	Manifests *manifest.Status `json:"manifests,omitempty"`
	Setup
}

// Setup describes the servers of a proxy, and the settings that it could not
// apply.
type Setup struct {
	// HealthzBindAddress and MetricsBindAddress are the addresses and ports of
	// the servers of /healthz and /metrics.
	HealthzBindAddress string `json:"healthzBindAddress,omitempty"`
	MetricsBindAddress string `json:"metricsBindAddress,omitempty"`
	// UnsetSysctls has an error for each sysctl of connection tracking that
	// could not be set.
	UnsetSysctls []string `json:"unsetSysctls,omitempty"`
	// ConfigFile is nil if the configuration file is in effect.
	ConfigFile *FileProblem `json:"configFile,omitempty"`
}

// FileProblem is why the content of the configuration file is not in effect.
type FileProblem struct {
	File  string    `json:"file"`
	Error string    `json:"error"`
	Since time.Time `json:"since"`
}

// status answers the question. It does not wait for a sync.
func (a *Answers) status(_ context.Context, _ struct{}, yield func(*ProxyStatus) error) error {
	s := &ProxyStatus{Version: a.config.Version, Status: a.config.Proxy.Status()}
	s.NodeEligible = a.config.NodeEligible()
	if a.config.Setup != nil {
		s.Setup = a.config.Setup()
	}
	if a.config.API != nil {
		s.API = a.config.API()
	}
	if a.config.Manifests != nil {
		s.Manifests = a.config.Manifests()
	}
	return yield(s)
}
