package flows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/conntrack"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// Reader reads the connections of the network namespace in which it was opened.
type Reader struct {
	conn *conntrack.Conn
	// kernels are the proxy's tables of the families that have one.
	kernels map[nft.Family]*explain.Kernel
	unknown error // the first reason why an endpoint or a name is not known
}

// Open opens a Reader. It works without a table of the proxy. The error is for
// people.
func Open() (*Reader, error) {
	conn, err := conntrack.Open()
	if err != nil {
		return nil, err
	}
	r := &Reader{conn: conn, kernels: make(map[nft.Family]*explain.Kernel)}
	for _, f := range []nft.Family{nft.IPv4, nft.IPv6} {
		kernel, err := explain.OpenKernel(f)
		if err == nil {
			r.kernels[f] = kernel
			continue
		}
		r.unknown = cmp.Or(r.unknown, err)
	}
	if len(r.kernels) > 0 {
		r.unknown = nil // a proxy may serve one family only
	}
	return r, nil
}

// Close closes the Reader.
func (r *Reader) Close() error {
	errs := []error{r.conn.Close()}
	for _, kernel := range r.kernels {
		errs = append(errs, kernel.Close())
	}
	return errors.Join(errs...)
}

// ServicePort is a service port whose connections are counted.
type ServicePort struct {
	// Name is the namespace/name:port, "" if it is not known.
	Name     string
	Protocol cluster.Protocol
	// Frontends are its addresses. A NodePort has the unspecified address.
	Frontends []netip.AddrPort
	// Endpoints are those in EndpointSlices, used or not, nil if they are not
	// known.
	Endpoints map[netip.AddrPort]bool
}

// Count counts the connections to service ports. A port without a name is left
// out if it has no connections and belongs to no Service.
func (r *Reader) Count(ctx context.Context, ports []ServicePort) (*Report, error) {
	report, err := r.newReport()
	if err != nil {
		return nil, err
	}
	selected := 0
	for _, port := range ports {
		group, err := r.count(ctx, report, port)
		if err != nil {
			return nil, err
		}
		if group.ServicePort == "" && group.Connections+group.Untranslated == 0 {
			continue
		}
		report.Groups = append(report.Groups, group)
		selected += group.Connections + group.Untranslated
	}
	r.addNotes(report, selected)
	return report, nil
}

func (r *Reader) newReport() (*Report, error) {
	tracked, err := r.conn.Entries()
	if errors.Is(err, unix.EPERM) {
		err = errors.New("no permission to read connections: CAP_NET_ADMIN is required")
	}
	return &Report{Groups: []*Group{}, Tracked: tracked}, err
}

// count counts the connections to one service port.
func (r *Reader) count(ctx context.Context, report *Report, port ServicePort) (*Group, error) {
	g := newGroup(port.Name, port.Protocol.String())
	var used map[netip.AddrPort]bool
	for _, frontend := range port.Frontends {
		g.Frontends = append(g.Frontends, Frontend{Address: frontend})
		s := conntrack.Selection{
			Family: nft.FamilyOf(frontend.Addr()), Protocol: uint8(port.Protocol), Port: frontend.Port(),
		}
		if frontend.Addr().IsUnspecified() {
			s.Translated = true // others are to ports of pods and other hosts
		} else {
			s.Addr = frontend.Addr()
		}
		read, err := r.conn.Select(ctx, s, g.count)
		report.Read += read
		if err != nil {
			return nil, err
		}
		name, endpoints := r.explain(frontend, port.Protocol)
		g.ServicePort = cmp.Or(g.ServicePort, name)
		if used == nil {
			used = endpoints
		} else {
			maps.Copy(used, endpoints)
		}
	}
	g.addEndpoints(used, port.Endpoints)
	return g, nil
}

// explain returns the service port of a frontend and the endpoints that new
// connections reach. endpoints is nil if they are not known.
func (r *Reader) explain(
	frontend netip.AddrPort, protocol cluster.Protocol,
) (servicePort string, endpoints map[netip.AddrPort]bool) {
	kernel := r.kernels[nft.FamilyOf(frontend.Addr())]
	if kernel == nil || frontend.Addr().IsUnspecified() {
		return "", nil
	}
	inside, _, err := kernel.DefaultSource(frontend.Addr())
	endpoints = make(map[netip.AddrPort]bool)
	for _, client := range []netip.Addr{inside, explain.Outside(kernel.Table.Family)} {
		var result *explain.Result
		if err == nil {
			result, err = kernel.Explain(explain.Query{Destination: frontend, Protocol: protocol, Source: client})
		}
		if err != nil {
			r.unknown = cmp.Or(r.unknown, err)
			return servicePort, nil
		}
		servicePort = cmp.Or(servicePort, result.ServicePort)
		for _, o := range result.Outcomes {
			if o.Action == explain.ToEndpoint {
				endpoints[o.Endpoint] = true
			}
		}
	}
	return servicePort, endpoints
}

// addNotes adds remarks about what the numbers do not show.
func (r *Reader) addNotes(report *Report, selected int) {
	if r.unknown != nil {
		report.Notes = append(report.Notes,
			fmt.Sprintf("names of Services and endpoints in use are not known: %v", r.unknown))
	}
	const fewReads = 1000
	if report.Read > fewReads && report.Read > 2*selected {
		report.Notes = append(report.Notes, fmt.Sprintf(
			"this kernel does not filter these connections: it sent %d to count %d", report.Read, selected))
	}
}

// frontend identifies a frontend.
type frontend struct {
	address  netip.AddrPort
	protocol cluster.Protocol
}

// Top counts the connections to all frontends of Services, and returns the n
// frontends with most connections. It counts no endpoints.
func (r *Reader) Top(ctx context.Context, n int) (*Report, error) {
	report, err := r.newReport()
	if err != nil {
		return nil, err
	}
	report.top = true
	counts := make(map[frontend]*Counts) // one for each frontend: memory does not depend on the connections
	for _, family := range []nft.Family{nft.IPv4, nft.IPv6} {
		read, err := r.conn.Select(ctx, conntrack.Selection{Family: family, Translated: true},
			func(c conntrack.Connection) {
				countsOf(counts, frontend{c.Frontend, cluster.Protocol(c.Protocol)}).add(c.State)
				report.Total++
			})
		report.Read += read
		if err != nil {
			return nil, err
		}
	}
	if err := r.addTop(ctx, report, counts, n); err != nil {
		return nil, err
	}
	r.addNotes(report, report.Total)
	return report, nil
}

// addTop adds the n frontends of Services with most connections. Other programs
// translate destinations, too. Without a table, their frontends cannot be
// distinguished.
func (r *Reader) addTop(ctx context.Context, report *Report, counts map[frontend]*Counts, n int) error {
	for _, key := range slices.SortedFunc(maps.Keys(counts), func(a, b frontend) int {
		return cmp.Or(cmp.Compare(counts[b].Connections, counts[a].Connections), a.address.Compare(b.address),
			cmp.Compare(a.protocol, b.protocol))
	}) {
		if len(report.Groups) == n {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		name, endpoints := r.explain(key.address, key.protocol)
		if name == "" && endpoints != nil {
			continue
		}
		report.Groups = append(report.Groups, &Group{
			ServicePort: name, Protocol: key.protocol.String(), Counts: *counts[key],
			Frontends: []Frontend{{key.address, counts[key].Connections}},
		})
	}
	return nil
}
