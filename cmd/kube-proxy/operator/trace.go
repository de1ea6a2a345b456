package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/trace"
)

// traceFlags are the flags of the command trace.
type traceFlags struct {
	destinationFlags
	count int
}

func newTrace() *cobra.Command {
	flags := traceFlags{}
	cmd := &cobra.Command{
		Use:   "trace [IP:PORT | svc/NAMESPACE/NAME[:PORT]]",
		Short: "Show what happens to real packets to Services",
		Long: "trace follows the first packets of real connections through the rules in the kernel of this node, by " +
			"nftrace. For each packet it prints the endpoint that it was sent to, or the rule of any nftables table " +
			"that refused it, and the rules that it matched. Without a destination it traces packets to all " +
			"Services; without a running proxy, those to ClusterIPs.\n\n" +
			"It traces about 10 new connections per second. Its rules are in a table of its own, which the kernel " +
			"deletes when the command ends, however it ends (Linux 5.12). Rules of legacy iptables do not report " +
			"packets: a packet that they drop is lost after the last chain that saw it.\n\n" +
			"The exit code is 0 if a packet was seen, also if it was refused, and 1 if none was.",
		Example: "  nftproxy trace svc/default/web\n" +
			"  nftproxy trace 192.0.2.10:443 --from 198.51.100.7 --count 1\n" +
			"  nftproxy trace --from outside --timeout 5m -o json",
		Args:              argument(destinations, true),
		RunE:              flags.run,
		ValidArgsFunction: completeService(&flags.proxyFlags, servicePrefix),
	}
	flags.addFrom(cmd, "packets: an address, a range of addresses, pod, node or outside (default any)")
	flags.addProtocol(cmd, "packets", "any")
	cmd.Flags().IntVar(&flags.count, "count", 10, "end after `N` packets")
	flags.add(cmd, 30*time.Second)
	return cmd
}

// run traces packets until one of the limits is reached or the user interrupts
// it.
func (f *traceFlags) run(cmd *cobra.Command, args []string) error {
	if f.count < 1 {
		return fmt.Errorf("--count %d is not greater than 0", f.count)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
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
	fmt.Fprintf(cmd.ErrOrStderr(), "tracing new connections to %s: at most %d packets, for %v\n", what, f.count,
		f.timeout)
	seen, err := f.follow(ctx, cmd.OutOrStdout(), t)
	if err != nil {
		return err
	}
	return f.conclude(cmd.ErrOrStderr(), t, seen, what)
}

// follow prints packets and returns their number.
func (f *traceFlags) follow(ctx context.Context, w io.Writer, t *trace.Trace) (seen int, err error) {
	for ; seen < f.count; seen++ {
		packet, err := t.Next(ctx)
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return seen, nil
		}
		if err != nil {
			return seen, err
		}
		if err := f.print(w, packet, seen == 0); err != nil {
			return seen, err
		}
	}
	return seen, nil
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

// conclude reports lost messages. It returns an error if no packet was seen.
func (f *traceFlags) conclude(w io.Writer, t *trace.Trace, seen int, what string) error {
	lost, err := t.Lost()
	if err != nil {
		return err
	}
	if lost > 0 {
		fmt.Fprintf(w, "%d messages about packets were lost: some packets are missing or incomplete\n", lost)
	}
	if seen > 0 {
		return nil
	}
	return errors.New(strings.Join([]string{
		"no new connection to " + what + " was seen: no client connected", "its packets did not reach this node",
		"or another program translated or dropped them before (eBPF, tc, XDP, a rule in the pod)",
	}, ", "))
}
