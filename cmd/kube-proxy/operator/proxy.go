package operator

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
)

// proxyFlags are the flags of a command that asks the running proxy.
type proxyFlags struct {
	socket  string
	timeout time.Duration
	output  output
}

func (f *proxyFlags) add(cmd *cobra.Command, timeout time.Duration) {
	cmd.Flags().StringVar(&f.socket, "socket", "", "`PATH` of the socket of the proxy (default the socket of the "+
		"proxy in this network namespace)")
	cmd.Flags().DurationVar(&f.timeout, "timeout", timeout, "`TIME` after which the command ends")
	f.output.addFlag(cmd)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if f.timeout <= 0 {
			return fmt.Errorf("--timeout %v is not greater than 0", f.timeout)
		}
		return nil
	}
}

// destinationFlags are the flags of a command about packets or connections.
type destinationFlags struct {
	proxyFlags
	from, protocol string
}

// addFrom adds the flag --from.
func (f *destinationFlags) addFrom(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVar(&f.from, "from", "", "`SOURCE` of the "+usage)
	complete(cmd, "from", fromPod, fromNode, fromOutside)
}

// addProtocol adds the flag --protocol.
func (f *destinationFlags) addProtocol(cmd *cobra.Command, of, byDefault string) {
	cmd.Flags().StringVar(&f.protocol, "protocol", "",
		fmt.Sprintf("`PROTOCOL` of the %s: tcp, udp or sctp (default %s)", of, byDefault))
	complete(cmd, "protocol", "tcp", "udp", "sctp")
}

// parseProtocol returns the protocol, 0 without --protocol.
func (f *destinationFlags) parseProtocol() (cluster.Protocol, error) {
	if f.protocol = strings.ToLower(f.protocol); f.protocol == "" {
		return 0, nil
	}
	return cluster.ParseProtocol(f.protocol)
}

// ask calls f with a client of the running proxy.
func (f *proxyFlags) ask(cmd *cobra.Command, ask func(context.Context, *socket.Client) error) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	client, err := socket.Dial(ctx, f.socket)
	if err != nil {
		return err
	}
	defer client.Close()
	return ask(ctx, client)
}

// services asks the proxy for Services.
func (f *proxyFlags) services(ctx context.Context, q cluster.ServiceName) iter.Seq2[*table.ServiceView, error] {
	return func(yield func(*table.ServiceView, error) bool) {
		client, err := socket.Dial(ctx, f.socket)
		if err != nil {
			yield(nil, err)
			return
		}
		defer client.Close()
		client.Services(ctx, q)(yield)
	}
}
