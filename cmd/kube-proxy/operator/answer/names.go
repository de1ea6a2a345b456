package answer

import (
	"context"
	"net/url"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Names requests the names of all Services, or of the Services of a namespace.
var Names = socket.Question[string, cluster.ServiceName]{
	Path:   "/v1/names",
	Format: func(namespace string) url.Values { return url.Values{"namespace": {namespace}} },
	Parse:  func(v url.Values) (string, error) { return v.Get("namespace"), nil },
}

// names answers the question, in order. If a family does not answer, the names
// of the other one come before the error.
func (a *Answers) names(ctx context.Context, namespace string, yield func(*cluster.ServiceName) error) error {
	q := cluster.ServiceName{Namespace: namespace}
	names, _, failed := a.namesOf(ctx, q)
	for i := range names {
		if err := yield(&names[i]); err != nil {
			return err
		}
	}
	return failed
}
