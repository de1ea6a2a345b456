package answer

import (
	"context"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/route"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/history"
	"github.com/nftproxy/nftproxy/proxier/informer/apiclient"
	"github.com/nftproxy/nftproxy/proxier/localhost"
	"github.com/nftproxy/nftproxy/proxier/manifest"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// Proxy is the proxy that answers are about. *proxier.Proxier implements it.
type Proxy interface {
	Status() proxier.Status
	Query(ctx context.Context, f nft.Family, ask func(*table.Table) error) error
	History(history.Query) []history.Entry
	Localhost(f nft.Family, port uint16) (state localhost.State, ok bool)
	Healthy() bool
	HasSlice(cluster.ServiceName) bool
}

// Config configures Answers.
type Config struct {
	Proxy Proxy
	// Version is the version of the program.
	Version string
	// NodeEligible reports whether load balancers may send traffic to this
	// node.
	NodeEligible func() bool
	// API returns the contact with the API server, nil without one.
	API func() *apiclient.ContactState
	// Manifests returns the state of the folder of manifests, nil without one.
	Manifests func() *manifest.Status
	// Setup returns the settings that the proxy could not apply. It may be nil.
	Setup func() Setup
}

// Answers computes answers. Any goroutine can use it.
type Answers struct {
	config Config
	routes *route.Routes
	meter  *meter
}

// New returns the Answers of a proxy in the network namespace of the calling
// thread.
func New(config Config) (*Answers, error) {
	routes, err := route.Open()
	if err != nil {
		return nil, err
	}
	meter, err := newMeter()
	if err != nil {
		routes.Close()
		return nil, err
	}
	return &Answers{config, routes, meter}, nil
}

// Close closes the connections to the kernel, after the questions have ended.
func (a *Answers) Close() {
	a.routes.Close()
	a.meter.close()
}

// Pages returns all questions with their answers.
func (a *Answers) Pages() []socket.Page {
	return []socket.Page{
		Status.AnsweredBy(a.status), Services.AnsweredBy(a.services), Diff.AnsweredBy(a.diff),
		Explain.AnsweredBy(a.explain), History.AnsweredBy(a.history), Names.AnsweredBy(a.names),
		Nodes.AnsweredBy(a.nodes), Endpoints.AnsweredBy(a.endpoints), Top.AnsweredBy(a.top), Pod.AnsweredBy(a.pod),
	}
}

// families returns the address families of the proxy.
func (a *Answers) families() (all []nft.Family) {
	for _, f := range a.config.Proxy.Status().Families {
		all = append(all, f.Family)
	}
	return all
}

// ask runs a query about a table, and returns its result.
func ask[T any](
	ctx context.Context, p Proxy, f nft.Family, question func(*table.Table) (T, error),
) (result T, err error) {
	results := make(chan T, 1) // without an answer in time, the question may still be asked later
	err = p.Query(ctx, f, func(t *table.Table) error {
		result, err := question(t)
		results <- result
		return err
	})
	if err == nil {
		result = <-results
	}
	return result, err
}
