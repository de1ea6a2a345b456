package answer

import (
	"context"
	"net/url"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
	"github.com/nftproxy/nftproxy/proxier/manifest"
)

// Status asks for the status of the proxy.
var Status = socket.Question[struct{}, ProxyStatus]{
	Path:   "/v1/status",
	Format: func(struct{}) url.Values { return nil },
	Parse:  func(url.Values) (query struct{}, err error) { return query, nil },
}

// ProxyStatus describes a running proxy.
type ProxyStatus struct {
	Version string `json:"version"`
	proxier.Status
	// API is nil if the proxy serves manifests.
	API *apiclient.ContactState `json:"api,omitempty"`
	// Manifests is nil if the proxy serves an API server.
	Manifests *manifest.Status `json:"manifests,omitempty"`
}

// status answers the question. It does not wait for a sync.
func (a *Answers) status(_ context.Context, _ struct{}, yield func(*ProxyStatus) error) error {
	s := &ProxyStatus{Version: a.config.Version, Status: a.config.Proxy.Status()}
	s.NodeEligible = a.config.NodeEligible()
	if a.config.API != nil {
		s.API = a.config.API()
	}
	if a.config.Manifests != nil {
		s.Manifests = a.config.Manifests()
	}
	return yield(s)
}
