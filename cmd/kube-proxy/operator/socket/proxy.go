package socket

import (
	"context"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// Proxy answers queries. *answer.Answers implements it.
type Proxy interface {
	Status() *answer.Status
	Services(ctx context.Context, q cluster.ServiceName, yield func(*table.ServiceView) error) error
	Diff(ctx context.Context, after string, yield func(*table.DiffStep) error) error
	Explain(ctx context.Context, q explain.Query) (*explain.Desired, error)
}
