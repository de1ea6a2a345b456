package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/trace"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// traceFlags are the flags of the command trace.
type traceFlags struct {
	destinationFlags
	count int
}

// traced counts packets by their fates.
type traced struct {
	served, accepted, resets, errors, unanswered int // sent to an endpoint, and what came back
	refused, lost, others                        int
}

func newTrace() *cobra.Command {
	flags := traceFlags{}
	cmd := &cobra.Command{
		Use:   "trace [IP:PORT | SERVICE[:PORT] | pod/NAMESPACE/NAME[:PORT]]",
		Short: "Show what happens to real packets to Services",
		Long: "trace follows the first packets of real connections through the rules in the kernel of this node, by " +
			"nftrace. For each packet it prints the endpoint that it was sent to, or the rule of any nftables table " +
			"that refused it, the rules that it matched, and for TCP what came back: SYN-ACK, RST, an ICMP error, or " +
			"nothing in 3.5 s, in which repeated packets of a client are one. On the node of an endpoint, it also " +
			"shows the packets to a Service that other nodes translated. Without a destination it traces packets to " +
			"all Services; without a running proxy, those to ClusterIPs.\n\n" +
			"It traces about 10 new connections per second. Its rules are in a table of its own, which the kernel " +
			"deletes when the command ends, however it ends (Linux 5.12). If the kernel does not deliver a packet or " +
			"the answer, it names the cause: the route, rp_filter, forwarding, the neighbour. " +
			"Rules of legacy iptables do not report packets: a packet that they drop is lost after the last chain " +
			"that saw it. docs/troubleshooting.md lists the codes in brackets.\n\n" +
			"At the end, also after an interrupt, it prints the numbers of packets by their fates. The exit code is " +
			"0 if a packet was seen, also if it was refused, and 1 if none was until the timeout.",
		Example: "  nftproxy trace svc/default/web\n" +
			"  nftproxy trace 192.0.2.10:443 --from 198.51.100.7 --count 1\n" +
			"  nftproxy trace --from outside --timeout 5m -o json",
		Args:              argument(destinations, true),
		RunE:              flags.run,
		ValidArgsFunction: flags.completePorts,
	}
	flags.addNamespace(cmd)
	flags.addFrom(cmd, "packets: an address, a range of addresses, pod/NAMESPACE/NAME, pod, node or outside "+
		"(default any)")
	flags.addProtocol(cmd, "packets", "any")
	cmd.Flags().IntVar(&flags.count, "count", 10, "end after `N` packets")
	flags.add(cmd, 30*time.Second)
	return cmd
}

// run traces packets until one of the limits is reached or the user interrupts
// it.
func (f *traceFlags) run(cmd *cobra.Command, args []string) error {
	if f.count < 1 {
		return misusef("--count %d is not greater than 0", f.count)
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	what, selection, err := f.selection(ctx, args)
	if err != nil {
		return err
	}
	t, err := trace.Open(selection)
	if err != nil {
		return err
	}
	defer t.Close()
	fmt.Fprintf(cmd.ErrOrStderr(), "tracing new connections to %s; packets: at most %d, time: at most %v\n", what,
		f.count, f.timeout)
	seen, err := f.follow(ctx, cmd.OutOrStdout(), t)
	if err != nil {
		return err
	}
	interrupted := errors.Is(ctx.Err(), context.Canceled)
	return f.conclude(cmd.ErrOrStderr(), t, seen, interrupted, what)
}

// follow prints packets, and counts them.
func (f *traceFlags) follow(ctx context.Context, w io.Writer, t *trace.Trace) (seen traced, err error) {
	for seen.all() < f.count {
		packet, err := t.Next(ctx)
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return seen, nil
		}
		if err != nil {
			return seen, err
		}
		f.refine(ctx, packet)
		if err := f.print(w, packet, seen.all() == 0); err != nil {
			return seen, err
		}
		seen.add(packet)
	}
	return seen, nil
}

func (n *traced) add(p *trace.Packet) {
	switch {
	case p.Action == trace.Lost:
		n.lost++
	case p.Action == explain.Drop || p.Action == explain.Reject:
		n.refused++
	case p.Endpoint.IsValid():
		n.served++
		n.addReply(p.Reply)
	default:
		n.others++
	}
}

func (n *traced) addReply(r *trace.Reply) {
	switch {
	case r == nil:
	case r.Kind == trace.Accepted:
		n.accepted++
	case r.Kind == trace.Refused:
		n.resets++
	case r.Kind == trace.ICMPError:
		n.errors++
	default:
		n.unanswered++
	}
}

func (n *traced) all() int { return n.served + n.refused + n.lost + n.others }

// String returns the numbers that are not 0.
func (n *traced) String() string {
	text := fmt.Sprintf("packets: %d", n.all())
	for _, part := range []struct {
		n    int
		what string
	}{
		{n.served, "sent to an endpoint"}, {n.accepted, "accepted"}, {n.resets, "refused by an endpoint"},
		{n.errors, "answered by an ICMP error"}, {n.unanswered, "unanswered"},
		{n.refused, "dropped or rejected"}, {n.lost, "lost"}, {n.others, "others"},
	} {
		if part.n > 0 {
			text += fmt.Sprintf(", %s: %d", part.what, part.n)
		}
	}
	return text
}

// refine asks the proxy which endpoints of the service port of a packet are
// ejected, or why it has none. Without an answer, the reason that the rules
// show stays.
func (f *traceFlags) refine(ctx context.Context, packet *trace.Packet) {
	if !packet.Lacks() {
		f.addEjected(ctx, packet)
		return
	}
	if desired, err := answer.Explain.AskOne(ctx, &f.client, packet.Query()); err == nil {
		packet.Refine(&desired.Lack)
	}
}

// addEjected adds the ejected endpoints of the service port of a packet.
func (f *traceFlags) addEjected(ctx context.Context, packet *trace.Packet) {
	if packet.ServicePort == "" {
		return
	}
	status, err := f.status(ctx, time.Second)
	if err != nil {
		return
	}
	for i := range status.Families {
		for _, e := range status.Families[i].Ejections {
			if e.Name == packet.ServicePort && e.Endpoint.Addr().Is4() == packet.Destination.Addr().Is4() {
				packet.Ejected = append(packet.Ejected, e.Ejection)
			}
		}
	}
}

// print prints a packet: with JSON as one line, with YAML as one document.
func (f *traceFlags) print(w io.Writer, packet *trace.Packet, first bool) error {
	switch {
	case f.output.format == formatJSON:
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		return encoder.Encode(packet)
	case f.output.format == formatYAML:
		fmt.Fprintln(w, "---")
	case !first:
		fmt.Fprintln(w)
	}
	return f.output.write(w, packet, packet.Print)
}

// conclude prints a summary, and reports lost messages. It returns an error if
// no packet was seen, unless the user interrupted the command.
func (f *traceFlags) conclude(w io.Writer, t *trace.Trace, seen traced, interrupted bool, what string) error {
	lost, err := t.Lost()
	if err != nil {
		return err
	}
	if lost > 0 {
		fmt.Fprintf(w, "%d messages about packets were lost: some packets are missing or incomplete\n", lost)
	}
	if seen.all() > 0 || interrupted {
		fmt.Fprintln(w, &seen)
		return nil
	}
	return errors.New("no new connection to " + what + " was seen: no client connected, its packets did not reach " +
		"this node, or another program translated or dropped them before (eBPF, tc, XDP, a rule in the pod)")
}

// selection returns the packets to trace, and describes their destination.
func (f *traceFlags) selection(ctx context.Context, args []string) (what string, s trace.Selection, err error) {
	if err = f.parseProtocol(); err != nil {
		return "", s, err
	}
	s.Protocol = f.protocol
	if err = f.parseFrom(ctx); err != nil {
		return "", s, err
	}
	if s.Source, err = f.source(); err != nil {
		return "", s, err
	}
	if len(args) == 0 {
		what, err = f.selectAll(ctx, &s)
		return what, s, err
	}
	ports, service, err := f.ports(ctx, args[0])
	s.Frontends = tracedFrontends(ports)
	if service != nil {
		s.Endpoints = localEndpoints(service.ServiceName, ports)
	}
	return args[0], s, err
}

// localEndpoints returns the endpoints of service ports that are on this node,
// with the names of the service ports.
func localEndpoints(service cluster.ServiceName, ports []table.PortView) map[trace.Frontend]string {
	all := make(map[trace.Frontend]string)
	for _, p := range ports {
		for i := range p.Endpoints {
			if e := &p.Endpoints[i]; e.OnThisNode && e.Port != 0 {
				at := trace.Frontend{Addr: netip.AddrPortFrom(e.Addr, e.Port), Protocol: p.Protocol}
				all[at] = service.WithPort(p.Name).String()
			}
		}
	}
	return all
}

// tracedFrontends returns the frontends of service ports.
func tracedFrontends(ports []table.PortView) (frontends []trace.Frontend) {
	for _, p := range ports {
		for i := range p.Frontends {
			for _, addr := range addressesOf(&p.Frontends[i]) {
				frontends = append(frontends, trace.Frontend{Addr: addr, Protocol: p.Protocol})
			}
		}
	}
	return frontends
}

// selectAll selects packets to all Services of the running proxy or, without
// one, to all ClusterIPs.
func (f *traceFlags) selectAll(ctx context.Context, s *trace.Selection) (what string, err error) {
	for service, err := range answer.Services.Ask(ctx, &f.client, cluster.ServiceName{}) {
		if errors.Is(err, socket.ErrNoProxy) && f.client.Path == "" {
			s.Ranges, err = rangesOf((*node.Kernel).ServiceRanges,
				"the rules contain no range of ClusterIPs: give a destination as IP:PORT")
			return "ClusterIPs (no running proxy was found)", err
		}
		if err != nil {
			return "", err
		}
		s.Frontends = append(s.Frontends, tracedFrontends(service.Ports)...)
	}
	if len(s.Frontends) == 0 {
		return "", errors.New("the proxy serves no Services")
	}
	return "all Services", nil
}

// rangesOf returns the ranges of both families that the rules contain. Without
// one, the error is none.
func rangesOf(of func(*node.Kernel) ([]netip.Prefix, error), none string) (ranges []netip.Prefix, err error) {
	err = node.InTables(func(k *node.Kernel) error {
		found, err := of(k)
		ranges = append(ranges, found...)
		return err
	})
	if err == nil && len(ranges) == 0 {
		err = errors.New(none)
	}
	return ranges, err
}

// source returns the source that --from names.
func (f *traceFlags) source() (source trace.Source, err error) {
	switch f.from {
	case "":
		return source, nil
	case node.FromNode:
		return trace.Source{NotOthers: true}, nil
	case node.FromPod, node.FromOutside:
		pods, err := rangesOf((*node.Kernel).PodRanges,
			"the rules do not recognize pods by a range of addresses: give an address or a range")
		if err != nil {
			return source, fmt.Errorf("--from %s: %w", f.from, err)
		}
		if f.from == node.FromPod {
			return trace.Source{NotNode: true, Within: pods}, nil
		}
		return trace.Source{NotNode: true, Except: pods}, nil
	}
	for _, addr := range f.sources {
		source.Within = append(source.Within, netip.PrefixFrom(addr, addr.BitLen()))
	}
	if len(source.Within) > 0 {
		return source, nil
	}
	p, err := netip.ParsePrefix(f.from)
	if err != nil {
		return source, misusef("--from %q is not an address, a range of addresses, pod/NAMESPACE/NAME, pod, node or "+
			"outside", f.from)
	}
	return trace.Source{Within: []netip.Prefix{p}}, nil
}
