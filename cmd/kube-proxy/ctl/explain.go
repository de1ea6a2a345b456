package ctl

import (
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/proxier/explain"
)

// Sources of packets that --from names.
const (
	fromPod     = "pod"
	fromNode    = "node"
	fromOutside = "outside"
)

// explainFlags are the flags of the command explain.
type explainFlags struct {
	from, protocol, iface string
	output                *output
}

func newExplain() *cobra.Command {
	flags := explainFlags{output: newOutput(true)}
	cmd := &cobra.Command{
		Use:   "explain IP:PORT",
		Short: "Explain where a connection to an address of a Service goes",
		Long: "explain walks the first packet of a hypothetical connection through the rules in the kernel of " +
			"this node. It prints the endpoints that the connection can reach, or the refusal and its reason, " +
			"and then the rules and rows that decide. It sends no packet. It does not look at other tables, " +
			"at routes to endpoints, or at the endpoints.\n\n" +
			"A refusal is an answer: the exit code is 0.",
		Example: "  nftproxy explain 10.96.0.10:80\n" +
			"  nftproxy explain 192.0.2.10:443 --from 198.51.100.7\n" +
			"  nftproxy explain '[fd00:96::10]:53' --protocol udp --from node -o wide",
		Args: destinationArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := flags.ask(args[0])
			if err != nil {
				return err
			}
			return flags.output.write(cmd.OutOrStdout(), r, func(w io.Writer) error {
				return r.Print(w, flags.output.format == formatWide)
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags.add(cmd)
	return cmd
}

func (f *explainFlags) add(cmd *cobra.Command) {
	set := cmd.Flags()
	set.StringVar(&f.from, "from", "", "`SOURCE` of the packet: an address, pod, node or outside "+
		"(default pod, or node if the rules do not recognize pods by a range of addresses)")
	set.StringVar(&f.protocol, "protocol", "tcp", "`PROTOCOL` of the packet: tcp, udp or sctp")
	set.StringVar(&f.iface, "interface", "",
		"`NAME` of the interface on which the packet arrives (default that of the route to the source)")
	f.output.addFlag(cmd)
	complete(cmd, "from", fromPod, fromNode, fromOutside)
	complete(cmd, "protocol", "tcp", "udp", "sctp")
}

func destinationArg(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("explain needs one argument, the destination as IP:PORT; got %d", len(args))
	}
	return nil
}

// ask explains a packet to a destination.
func (f *explainFlags) ask(destination string) (*explain.Result, error) {
	q := explain.Query{Interface: f.iface}
	var err error
	if q.Destination, err = parseDestination(destination); err != nil {
		return nil, err
	}
	if q.Protocol, err = explain.ParseProtocol(strings.ToLower(f.protocol)); err != nil {
		return nil, err
	}
	kernel, err := explain.OpenKernel(nft.FamilyOf(q.Destination.Addr()))
	if err != nil {
		return nil, err
	}
	defer kernel.Close()
	if q.Source, q.From, err = f.source(kernel, q.Destination.Addr()); err != nil {
		return nil, err
	}
	return kernel.Explain(q)
}

// parseDestination parses IP:PORT.
func parseDestination(text string) (netip.AddrPort, error) {
	if strings.HasPrefix(text, "svc/") {
		return netip.AddrPort{}, fmt.Errorf("%s: names of Services are not supported yet: give an address as IP:PORT", text)
	}
	to, err := netip.ParseAddrPort(text)
	switch {
	case err != nil:
		return to, fmt.Errorf("destination %q is not IP:PORT or [IP]:PORT", text)
	case to.Port() == 0:
		return to, fmt.Errorf("destination %s has port 0", text)
	case to.Addr().Zone() != "" || to.Addr().Is4In6():
		return to, fmt.Errorf("destination %s is neither a plain IPv4 nor a plain IPv6 address", text)
	}
	return to, nil
}

// source returns the source address, and its kind if --from does not name an
// address.
func (f *explainFlags) source(k *explain.Kernel, to netip.Addr) (addr netip.Addr, kind string, err error) {
	switch f.from {
	case "":
		if addr, ok, err := k.PodAddress(); ok || err != nil {
			return addr, fromPod, err
		}
		addr, err = k.NodeSource(to)
		return addr, fromNode, err
	case fromPod:
		addr, ok, err := k.PodAddress()
		if err == nil && !ok {
			err = fmt.Errorf("--from pod: the rules do not recognize pods by a range of addresses: give the address of a pod")
		}
		return addr, fromPod, err
	case fromNode:
		addr, err = k.NodeSource(to)
		return addr, fromNode, err
	case fromOutside:
		return outsideAddr(to), fromOutside, nil
	}
	if addr, err = netip.ParseAddr(f.from); err != nil {
		return addr, "", fmt.Errorf("--from %q is not an address, pod, node or outside", f.from)
	}
	return addr, "", nil
}

// outsideAddr returns an address of the family of another one that no host has:
// of TEST-NET-3 (RFC 5737), or of the range for documentation (RFC 9637).
func outsideAddr(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.AddrFrom4([4]byte{203, 0, 113, 1})
	}
	return netip.AddrFrom16([16]byte{0x3f, 0xff, 15: 1})
}
