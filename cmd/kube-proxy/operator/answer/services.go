package answer

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// Services asks for the Services that a query selects. An empty field of the
// query selects all. The endpoints, and the addresses of NodePorts, are listed
// if the query names a Service.
var Services = socket.Question[cluster.ServiceName, table.ServiceView]{
	Path: "/v1/services",
	Format: func(q cluster.ServiceName) url.Values {
		return url.Values{"namespace": {q.Namespace}, "name": {q.Name}}
	},
	Parse: func(v url.Values) (cluster.ServiceName, error) {
		return cluster.ServiceName{Namespace: v.Get("namespace"), Name: v.Get("name")}, nil
	},
}

// ErrNoService is the error of a query that names a Service that the proxy does
// not serve.
const ErrNoService = socket.NotFound("this proxy serves no such Service: it does not exist, is headless or belongs " +
	"to another proxy")

// Limits of what one query of the loop reads, because changes wait for it: at
// most servicesPerQuery Services, and no further one after endpointsPerQuery
// endpoints of service ports.
const (
	servicesPerQuery  = 32
	endpointsPerQuery = 1024
)

// services answers the question.
func (a *Answers) services(ctx context.Context, q cluster.ServiceName, yield func(*table.ServiceView) error) error {
	return a.views(ctx, q, func(s *table.ServiceView) error {
		if q.Name == "" {
			omitDetails(s)
		}
		return yield(s)
	})
}

// views calls yield for the Services that a query selects, in the order of
// their names. If a family does not answer, the answers of the other one come
// before the error.
func (a *Answers) views(ctx context.Context, q cluster.ServiceName, yield func(*table.ServiceView) error) error {
	if err := a.checkListed(); err != nil {
		return err
	}
	names, families, failed := a.namesOf(ctx, q)
	if len(names) == 0 && failed == nil && q.Name != "" {
		return fmt.Errorf("%s: %w", q, ErrNoService)
	}
	for len(names) > 0 && len(families) > 0 {
		var pages [][]table.ServiceView
		var err error
		pages, families, err = askEach(ctx, a.config.Proxy, families, func(t *table.Table) []table.ServiceView {
			return viewServices(t, names)
		})
		failed = errors.Join(failed, err)
		if len(families) == 0 {
			break
		}
		n := len(slices.MinFunc(pages, func(a, b []table.ServiceView) int { return len(a) - len(b) }))
		for i := range n {
			if err := yieldService(pages, i, yield); err != nil {
				return err
			}
		}
		names = names[n:]
	}
	return failed
}

// yieldService calls yield for Service i of the pages of all families, unless
// it was deleted meanwhile.
func yieldService(pages [][]table.ServiceView, i int, yield func(*table.ServiceView) error) error {
	var service *table.ServiceView
	for _, page := range pages {
		switch view := &page[i]; {
		case view.Name == "":
		case service == nil:
			service = view
		default:
			service.Add(view)
		}
	}
	if service == nil {
		return nil
	}
	return yield(service)
}

// omitDetails removes the endpoints and the addresses of NodePorts.
func omitDetails(s *table.ServiceView) {
	for i := range s.Ports {
		port := &s.Ports[i]
		port.Endpoints = nil
		for i := range port.Frontends {
			port.Frontends[i].Addresses = nil
		}
	}
}

// namesOf returns the names of the Services of a query, sorted, and the
// families that answered.
func (a *Answers) namesOf(
	ctx context.Context, q cluster.ServiceName,
) (names []cluster.ServiceName, families []nft.Family, err error) {
	found, families, err := askEach(ctx, a.config.Proxy, a.families(), func(t *table.Table) []cluster.ServiceName {
		return serviceNames(t, q)
	})
	names = slices.Concat(found...)
	slices.SortFunc(names, cluster.ServiceName.Compare)
	return slices.Compact(names), families, err
}

// serviceNames returns the names of the Services of a query.
func serviceNames(t *table.Table, q cluster.ServiceName) (names []cluster.ServiceName) {
	for name := range t.ServiceNames() {
		if (q.Namespace == "" || q.Namespace == name.Namespace) && (q.Name == "" || q.Name == name.Name) {
			names = append(names, name)
		}
	}
	return names
}

// viewServices returns the states of the first Services, as many as one query
// may read and at least one. A Service that the table does not have has no
// name.
func viewServices(t *table.Table, names []cluster.ServiceName) (views []table.ServiceView) {
	endpoints := 0
	for _, name := range names[:min(len(names), servicesPerQuery)] {
		view, _ := t.Service(name)
		for i := range view.Ports {
			endpoints += len(view.Ports[i].Endpoints)
		}
		if views = append(views, view); endpoints >= endpointsPerQuery {
			break
		}
	}
	return views
}

// askEach runs a query about the table of each family, at the same time. It
// returns the results of the families that answered in time, and the errors of
// the others.
func askEach[T any](
	ctx context.Context, p Proxy, families []nft.Family, question func(*table.Table) T,
) (results []T, answered []nft.Family, err error) {
	all, errs := make([]T, len(families)), make([]error, len(families))
	var asked sync.WaitGroup
	for i, f := range families {
		asked.Go(func() {
			all[i], errs[i] = ask(ctx, p, f, func(t *table.Table) (T, error) { return question(t), nil })
		})
	}
	asked.Wait()
	for i, f := range families {
		if errs[i] == nil {
			results, answered = append(results, all[i]), append(answered, f)
		}
	}
	return results, answered, errors.Join(errs...)
}
