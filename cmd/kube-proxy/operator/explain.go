package operator

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/proxier/suggest"
)

// explainFlags are the flags of the command explain.
type explainFlags struct {
	destinationFlags
	iface, frontend string
	// set reports whether a flag was given.
	set func(name string) bool
}

func newExplain() *cobra.Command {
	flags := explainFlags{}
	cmd := &cobra.Command{
		Use:   "explain IP:PORT | SERVICE[:PORT] | pod/NAMESPACE/NAME[:PORT]",
		Short: "Explain where a connection to a Service goes",
		Long: "explain walks the first packet of a hypothetical connection through the rules in the kernel of " +
			"this node. It prints the endpoints that the connection can reach, or the refusal, its reason and a " +
			"remedy (ANSWER), the endpoints that it cannot reach (UNUSED), the route to each endpoint, with the " +
			"cause why it or the answer fails (ROUTE), and the rules of other tables that drop, translate or do " +
			"not track the packets or their answers (OTHER TABLES). -o wide adds the rules and rows that the packet " +
			"reaches (WALK). It sends no packet. It does not look at the endpoints. " +
			"docs/troubleshooting.md lists the codes in brackets.\n\n" +
			"It also asks the running proxy. So it lists the endpoints that the connection cannot reach, with the " +
			"reason, and the answer of the table that the proxy wants, if it is another one. " +
			"Without a running proxy, it explains addresses only.\n\n" +
			"A pod is known if an EndpointSlice names it (targetRef). PORT of a Service is a number or a name. " +
			"--frontend selects the addresses of a Service, of both address families. With -o json, the answer about " +
			"a Service is a list.\n\n" +
			"A refusal is an answer: the exit code is 0.",
		Example: "  nftproxy explain 10.96.0.10:80\n" +
			"  nftproxy explain 192.0.2.10:443 --from 198.51.100.7\n" +
			"  nftproxy explain svc/default/web --from pod/default/client\n" +
			"  nftproxy explain svc/default/web:http --frontend nodeport --from outside\n" +
			"  nftproxy explain '[fd00:96::10]:53' --protocol udp --from node -o wide",
		Args: argument(destinations, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags.set = cmd.Flags().Changed
			return flags.run(cmd, args[0])
		},
		ValidArgsFunction: flags.completePorts,
	}
	flags.addNamespace(cmd)
	flags.addTo(cmd)
	return cmd
}

func (f *explainFlags) addTo(cmd *cobra.Command) {
	f.addFrom(cmd, "packet: an address, pod/NAMESPACE/NAME, pod, node or outside "+
		"(default pod, or node if the rules do not recognize pods by a range of addresses)")
	f.addProtocol(cmd, "packet", "the protocol of the port of a Service, otherwise tcp")
	cmd.Flags().StringVar(&f.iface, "interface", "",
		"`NAME` of the interface on which the packet arrives (default the interface of the route to the source)")
	cmd.Flags().StringVar(&f.frontend, "frontend", frontendDefault, "`KIND` of the addresses of a Service: "+
		strings.Join(frontendNames(), ", "))
	f.add(cmd, 5*time.Second)
	complete(cmd, "frontend", frontendNames()...)
	completeWith(cmd, "interface", completeInterface)
}

// run explains packets to a destination.
func (f *explainFlags) run(cmd *cobra.Command, text string) error {
	to, err := f.parse(cmd.Context(), text)
	if err != nil {
		return err
	}
	packets, others, err := f.packets(cmd.Context(), to)
	if err != nil {
		return err
	}
	results, err := f.explainAll(cmd.Context(), packets)
	if err != nil {
		return err
	}
	var answer any = results
	if len(to.at) == 1 {
		answer = results[0]
	}
	return f.output.write(cmd.OutOrStdout(), answer, func(w io.Writer, wide bool) {
		for i, r := range results {
			if i > 0 {
				fmt.Fprint(w, "\n\n")
			}
			r.Print(w, wide)
		}
		if len(others) > 0 {
			fmt.Fprintf(w, "\nOther frontends: %s. --frontend all explains them.\n", frontendList(others))
		}
	})
}

// parse checks the flags and parses the destination.
func (f *explainFlags) parse(ctx context.Context, text string) (destination, error) {
	if err := f.parseProtocol(); err != nil {
		return destination{}, err
	}
	if !slices.Contains(frontendNames(), f.frontend) {
		return destination{}, misusef("--frontend %q is unknown: want %s", f.frontend,
			strings.Join(frontendNames(), ", "))
	}
	if err := f.checkInterface(); err != nil {
		return destination{}, err
	}
	if err := f.parseFrom(ctx); err != nil {
		return destination{}, err
	}
	to, err := f.parseDestination(ctx, text)
	if err == nil && to.service == nil && f.set("frontend") {
		err = misusef("--frontend selects the addresses of a Service, but the destination is %s", text)
	}
	return to, err
}

// checkInterface checks that this node has the interface of the flag
// --interface.
func (f *explainFlags) checkInterface() error {
	if f.iface == "" {
		return nil
	}
	names, err := interfaceNames()
	if err != nil {
		return err
	}
	if slices.Contains(names, f.iface) {
		return nil
	}
	if meant, ok := suggest.Closest(f.iface, names...); ok {
		return misusef("--interface %q does not exist on this node; did you mean %s?", f.iface, meant)
	}
	return misusef("--interface %q does not exist on this node: it has %s", f.iface, strings.Join(names, ", "))
}

// interfaceNames returns the names of the interfaces of this node.
func interfaceNames() (names []string, err error) {
	interfaces, err := net.Interfaces()
	for _, i := range interfaces {
		names = append(names, i.Name)
	}
	return names, err
}

// completeInterface completes the name of an interface of this node.
func completeInterface(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names, err := interfaceNames()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return names, wordEnds
}
