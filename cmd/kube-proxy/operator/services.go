package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
)

func newServices() *cobra.Command {
	var flags serviceFlags
	cmd := &cobra.Command{
		Use:   "services [SERVICE]",
		Short: "List the Services that the proxy serves",
		Long: "services lists the frontends of each Service: the addresses and ports at which clients reach it. " +
			"ENDPOINTS are those that the frontend uses, of all that the service port has. " +
			"With a SERVICE, it also lists the endpoints, and why they are not used. " +
			"-n NAMESPACE lists the Services of a namespace. " +
			"With -o wide, it also prints health check NodePorts, or the addresses of NodePorts, EndpointSlices and " +
			"hints.\n\nHeadless Services and Services of another proxy are not listed.",
		Example: "  nftproxy services -n shop\n  nftproxy services shop/web\n  nftproxy services web -w",
		Args:    argument(serviceForms, true),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := flags.parseNames(args)
			if err != nil {
				return err
			}
			return flags.listServices(cmd, q)
		},
		ValidArgsFunction: flags.completeServices,
	}
	flags.addNamespace(cmd)
	flags.addWatch(cmd)
	flags.add(cmd, 30*time.Second)
	flags.output.addNames(cmd)
	return cmd
}

// listServices writes the Services of a query. If the answer is not complete,
// it writes those that came before the error.
func (f *serviceFlags) listServices(cmd *cobra.Command, q cluster.ServiceName) error {
	ctx := cmd.Context()
	if f.watch {
		list := func(ctx context.Context) ([]row, error) {
			services, err := f.services(ctx, q)
			return serviceRows(services, false), err
		}
		return watchRows(ctx, cmd.OutOrStdout(), servicesHead, "\t-\t-\t-\tremoved", list)
	}
	services, failed := f.services(ctx, q)
	if failed != nil && len(services) == 0 {
		return failed
	}
	if f.output.format == formatName {
		for _, s := range services {
			fmt.Fprintln(cmd.OutOrStdout(), servicePrefix+s.ServiceName.String())
		}
		return failed
	}
	err := f.output.write(cmd.OutOrStdout(), services, func(w io.Writer, wide bool) {
		switch {
		case q.Name != "" && len(services) == 1:
			printService(w, services[0], wide)
		case len(services) == 0:
			fmt.Fprintln(w, f.none(ctx, "Services", q.Namespace))
		default:
			printServices(w, services, wide)
		}
	})
	return errors.Join(err, failed)
}

// services returns the Services of a query. If the answer is not complete, it
// returns those that came before the error.
func (f *serviceFlags) services(ctx context.Context, q cluster.ServiceName) (services []*table.ServiceView, err error) {
	services = []*table.ServiceView{} // an empty list in JSON, not null
	for s, failed := range answer.Services.Ask(ctx, &f.client, q) {
		if failed != nil {
			return services, f.explainMissing(ctx, q, failed)
		}
		services = append(services, s)
	}
	return services, nil
}

// newTable returns a writer that aligns columns, which tabs separate. A line
// without a tab begins new columns. w is a buffer, which returns no error.
func newTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

const servicesHead = "SERVICE PORT\tTYPE\tFRONTEND\tPOLICY\tAFFINITY\tENDPOINTS\tSTATE"

// printServices writes the frontends of Services.
func printServices(w io.Writer, services []*table.ServiceView, wide bool) {
	t := newTable(w)
	fmt.Fprintln(t, servicesHead+columns(wide, "HEALTH CHECK NODEPORT"))
	for _, r := range serviceRows(services, wide) {
		fmt.Fprintln(t, r.columns)
	}
	t.Flush()
}

// serviceRows returns a row for each frontend.
func serviceRows(services []*table.ServiceView, wide bool) (rows []row) {
	for _, s := range services {
		healthCheck := "none"
		if s.HealthCheckNodePort != 0 {
			healthCheck = fmt.Sprint(s.HealthCheckNodePort)
		}
		more := columns(wide, healthCheck)
		for i := range s.Ports {
			p := &s.Ports[i]
			for _, f := range p.Frontends {
				about := fmt.Sprintf("%s\t%s\t%s", s.WithPort(p.Name), f.Kind, frontendText(&f, p.Protocol))
				text := fmt.Sprintf("%s\t%s\t%s\t%d/%d\t%s%s", about, f.Policy, affinityText(s), f.UsedEndpoints,
					f.AllEndpoints, stateText(s, &f), more)
				rows = append(rows, row{about, text})
			}
		}
	}
	return rows
}

// columns returns more columns of a line, or "" unless they are shown.
func columns(shown bool, texts ...string) string {
	if !shown {
		return ""
	}
	return "\t" + strings.Join(texts, "\t")
}

func frontendText(f *table.FrontendView, protocol cluster.Protocol) string {
	if f.Kind == ruleset.NodePort {
		return fmt.Sprintf("%d/%s (%s)", f.Port, protocol, f.Family.Name())
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(f.Address, f.Port), protocol)
}

func affinityText(s *table.ServiceView) string {
	if s.AffinitySeconds == 0 {
		return "none"
	}
	return (time.Duration(s.AffinitySeconds) * time.Second).String()
}

// stateText returns what happens to connections to a frontend, with the code of
// the reason.
func stateText(s *table.ServiceView, f *table.FrontendView) string {
	code := ruleset.Reason{Code: f.State}.CodeText()
	left := "not served"
	if f.UsedEndpoints > 0 {
		left = "serves what is left of its last rules"
	}
	switch f.State {
	case ruleset.Conflict:
		return "not served: it belongs to " + f.Owner + code
	case ruleset.Waiting:
		return "waits for another attempt, " + left + ": " + f.Error + code
	case ruleset.Refused:
		return left + ": " + f.Error + code
	}
	text := cmp.Or(f.Lack.State(f.Kind), "served") + f.Lack.CodeText()
	if s.Restricted && f.Kind == ruleset.LoadBalancerIP && !s.Unrestricted(f.Family) {
		text += "; only for clients in " + prefixesText(s.SourceRanges)
	}
	if how, reduced := s.Reductions[f.Family]; reduced {
		text += "; the Service " + how
	}
	if s.HealthCheckOwner != "" && f.Kind != ruleset.ClusterIP {
		text += fmt.Sprintf("; its health-check NodePort %d belongs to %s", s.HealthCheckNodePort, s.HealthCheckOwner)
	}
	if s.Pending {
		text += "; a change is pending"
	}
	return text
}

func prefixesText(prefixes []netip.Prefix) string {
	if len(prefixes) == 0 {
		return "no range"
	}
	return joined(prefixes)
}

// joined returns values with commas between them.
func joined[T fmt.Stringer](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = v.String()
	}
	return strings.Join(texts, ", ")
}

// printService writes a Service with its endpoints.
func printService(w io.Writer, s *table.ServiceView, wide bool) {
	t := newTable(w)
	fmt.Fprintf(t, "SERVICE\t%s\n", s.ServiceName)
	fmt.Fprintf(t, "POLICY\tinternal %s, external %s\n", s.InternalPolicy, s.ExternalPolicy)
	fmt.Fprintf(t, "AFFINITY\t%s\n", affinityText(s))
	if s.HealthCheck != nil {
		fmt.Fprintf(t, "HEALTH CHECK\t%s\n", s.HealthCheck)
	}
	if s.Restricted {
		fmt.Fprintf(t, "SOURCE RANGES\t%s\n", prefixesText(s.SourceRanges))
	}
	if s.HealthCheckNodePort != 0 {
		fmt.Fprintf(t, "HEALTH CHECK NODEPORT\t%d", s.HealthCheckNodePort)
		if s.HealthCheckOwner != "" {
			fmt.Fprintf(t, ", which belongs to %s", s.HealthCheckOwner)
		}
		fmt.Fprintln(t)
	}
	t.Flush()
	for i := range s.Ports {
		printPort(w, s, &s.Ports[i], wide)
	}
}

func printPort(w io.Writer, s *table.ServiceView, p *table.PortView, wide bool) {
	fmt.Fprintf(w, "\nPORT %s\n", strings.TrimSpace(fmt.Sprintf("%s %d/%s", p.Name, p.Port, p.Protocol)))
	t := newTable(w)
	fmt.Fprintln(t, "  TYPE\tFRONTEND\tPOLICY\tENDPOINTS\tSTATE"+columns(wide, "LISTENS ON"))
	for _, f := range p.Frontends {
		fmt.Fprintf(t, "  %s\t%s\t%s\t%d/%d\t%s%s\n", f.Kind, frontendText(&f, p.Protocol), f.Policy,
			f.UsedEndpoints, f.AllEndpoints, stateText(s, &f), columns(wide, joined(f.Addresses)))
	}
	t.Flush()
	printEndpoints(w, p, wide)
}

// printEndpoints writes the endpoints of a service port. The columns for the
// policies are why traffic does not use them.
func printEndpoints(w io.Writer, p *table.PortView, wide bool) {
	if len(p.Endpoints) == 0 {
		fmt.Fprintln(w, "  no endpoints")
		return
	}
	local := slices.ContainsFunc(p.Frontends,
		func(f table.FrontendView) bool { return f.Policy == cluster.PolicyLocal })
	t := newTable(w)
	fmt.Fprintln(t, "  ENDPOINT\tNODE\tCONDITIONS\tPOLICY CLUSTER"+columns(local, "POLICY LOCAL")+
		columns(wide, "POD", "ENDPOINTSLICE", "HINTED ZONES", "HINTED NODES"))
	for _, e := range p.Endpoints {
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s%s%s\n", e.EndpointPlace, nodeText(&e), conditionsText(&e),
			useText(&e, cluster.PolicyCluster), columns(local, useText(&e, cluster.PolicyLocal)),
			columns(wide, cmp.Or(e.Pod, "-"), e.Source, strings.Join(e.Zones, ", "), strings.Join(e.Nodes, ", ")))
	}
	t.Flush()
}

func nodeText(e *ruleset.EndpointUse) string {
	switch {
	case e.Node == "":
		return "unknown"
	case e.OnThisNode:
		return e.Node + " (this node)"
	}
	return e.Node
}

func conditionsText(e *ruleset.EndpointUse) string {
	switch {
	case e.Terminating && e.Serving:
		return ruleset.UnusedTerminating.Text(ruleset.Facts{}) + ", serving"
	case e.Terminating:
		return ruleset.UnusedTerminating.Text(ruleset.Facts{})
	case !e.Ready:
		return ruleset.UnusedNotReady.Text(ruleset.Facts{})
	}
	return "ready"
}

func useText(e *ruleset.EndpointUse, policy cluster.Policy) string {
	switch why := e.Why(policy); {
	case why != "":
		return "not used: " + why + ruleset.Reason{Code: e.For(policy)}.CodeText()
	case e.Ejection != nil && e.Ejection.Unhealthy():
		return "used, although unhealthy: " + e.Ejection.Why()
	}
	return "used"
}
