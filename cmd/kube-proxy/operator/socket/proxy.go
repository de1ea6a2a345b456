package socket

import (
	"context"
	"errors"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
)

// Proxy answers queries. *proxier.Proxier implements it.
type Proxy interface {
	// Status does not wait for a sync. It leaves Version, NodeEligible and API
	// to the server.
	Status() Status
	// Services calls yield for each Service of a query, in the order of their
	// names. The error is ErrNoService if the query names a Service that the
	// proxy does not serve.
	Services(ctx context.Context, q ServiceQuery, yield func(*Service) error) error
	// Diff compares the tables with the kernel. It calls yield after each step.
	// It begins after a cursor of an earlier step, at the start if it is "".
	Diff(ctx context.Context, after string, yield func(*DiffStep) error) error
	// Explain walks a packet through the table that the proxy wants.
	Explain(ctx context.Context, q explain.Query) (*explain.Desired, error)
}

// ServiceQuery selects Services. An empty field selects all.
type ServiceQuery struct{ Namespace, Name string }

// ErrNoService is returned if a query names a Service that the proxy does not
// serve.
var ErrNoService = errors.New("this proxy serves no such Service: it does not exist, is headless or belongs to " +
	"another proxy")
