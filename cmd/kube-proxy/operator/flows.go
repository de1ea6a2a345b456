package operator

import (
	"context"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/flows"
)

// flowsFlags are the flags of the command flows.
type flowsFlags struct {
	destinationFlags
	top int
}

func newFlows() *cobra.Command {
	flags := flowsFlags{}
	cmd := &cobra.Command{
		Use:   "flows [IP:PORT | SERVICE[:PORT]]",
		Short: "Count the connections to a Service by endpoint and state",
		Long: "flows counts the connections to a Service or an address in the connection tracking of this node: for " +
			"each endpoint, by state. SKEW is the largest number of connections of an endpoint in use divided by the " +
			"mean of its family. Without a destination, it lists the addresses of Services with most connections.\n\n" +
			"It counts connections that this node translates. Connections of UDP have the state REPLIED or UNREPLIED.",
		Example: "  nftproxy flows\n" +
			"  nftproxy flows svc/default/web\n" +
			"  nftproxy flows 10.96.0.10:53 --protocol udp",
		Args:              argument(destinations, true),
		RunE:              flags.run,
		ValidArgsFunction: flags.completePorts,
	}
	flags.addNamespace(cmd)
	flags.addProtocol(cmd, "connections", "any")
	cmd.Flags().IntVar(&flags.top, "top", 20, "list `N` addresses if there is no destination")
	flags.add(cmd, 30*time.Second)
	return cmd
}

// run counts the connections to a destination, or to all Services.
func (f *flowsFlags) run(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	ports, err := f.ports(ctx, args)
	if err != nil {
		return err
	}
	reader, err := flows.Open()
	if err != nil {
		return err
	}
	defer reader.Close()
	var report *flows.Report
	if len(args) == 0 {
		report, err = reader.Top(ctx, f.top)
	} else {
		report, err = reader.Count(ctx, ports)
	}
	if err != nil {
		return err
	}
	return f.output.write(cmd.OutOrStdout(), report, report.Print)
}

// ports returns the service ports of a destination, none without one.
func (f *flowsFlags) ports(ctx context.Context, destination []string) (ports []flows.ServicePort, err error) {
	switch {
	case len(destination) > 0:
	case f.namespace != "":
		return nil, misusef("--namespace needs a destination")
	case f.protocolName != "":
		return nil, misusef("--protocol needs a destination")
	case f.top < 1:
		return nil, misusef("--top %d is not greater than 0", f.top)
	default:
		return nil, nil
	}
	if err := f.parseProtocol(); err != nil {
		return nil, err
	}
	found, service, err := f.destinationFlags.ports(ctx, destination[0])
	if err != nil {
		return nil, err
	}
	for _, p := range found {
		port := flows.ServicePort{Protocol: p.Protocol}
		if service != nil {
			port.Name, port.Endpoints = service.WithPort(p.Name), make(map[netip.AddrPort]bool)
		}
		for _, e := range p.Endpoints {
			port.Endpoints[netip.AddrPortFrom(e.Addr, e.Port)] = true
		}
		for i := range p.Frontends {
			port.Frontends = append(port.Frontends, addressesOf(&p.Frontends[i])...)
		}
		ports = append(ports, port)
	}
	return ports, nil
}
