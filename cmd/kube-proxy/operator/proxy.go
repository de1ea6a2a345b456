package operator

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/explain"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// proxyFlags are the flags of a command that asks the running proxy.
type proxyFlags struct {
	client  socket.Client
	timeout time.Duration
	output  output
}

// add adds the flags to a command, whose context ends after the timeout.
func (f *proxyFlags) add(cmd *cobra.Command, timeout time.Duration) {
	cmd.Flags().StringVar(&f.client.Path, "socket", "", "`PATH` of the socket of the proxy (default the socket of the "+
		"proxy in this network namespace)")
	cmd.Flags().DurationVar(&f.timeout, "timeout", timeout, "`TIME` after which the command ends")
	f.output.addFlag(cmd)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.timeout <= 0 {
			return fmt.Errorf("--timeout %v is not greater than 0", f.timeout)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
		defer cancel()
		cmd.SetContext(ctx)
		return run(cmd, args)
	}
}

// destinationFlags are the flags of a command about packets or connections.
type destinationFlags struct {
	proxyFlags
	from, protocolName string
	protocol           cluster.Protocol // 0 without --protocol
}

// addFrom adds the flag --from.
func (f *destinationFlags) addFrom(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVar(&f.from, "from", "", "`SOURCE` of the "+usage)
	complete(cmd, "from", explain.FromPod, explain.FromNode, explain.FromOutside)
}

// addProtocol adds the flag --protocol.
func (f *destinationFlags) addProtocol(cmd *cobra.Command, of, byDefault string) {
	cmd.Flags().StringVar(&f.protocolName, "protocol", "",
		fmt.Sprintf("`PROTOCOL` of the %s: tcp, udp or sctp (default %s)", of, byDefault))
	complete(cmd, "protocol", "tcp", "udp", "sctp")
}

// parseProtocol parses the flag --protocol.
func (f *destinationFlags) parseProtocol() (err error) {
	if f.protocolName = strings.ToLower(f.protocolName); f.protocolName != "" {
		f.protocol, err = cluster.ParseProtocol(f.protocolName)
	}
	return err
}
