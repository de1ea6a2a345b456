package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
)

// proxyFlags are the flags of a command that asks the running proxy.
type proxyFlags struct {
	socket  string
	timeout time.Duration
}

func (f *proxyFlags) add(cmd *cobra.Command, timeout time.Duration) {
	cmd.Flags().StringVar(&f.socket, "socket", "", "`PATH` of the socket of the proxy (default that of the proxy in "+
		"this network namespace)")
	cmd.Flags().DurationVar(&f.timeout, "timeout", timeout, "`TIME` after which the command ends")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if f.timeout <= 0 {
			return fmt.Errorf("--timeout %v is not greater than 0", f.timeout)
		}
		return nil
	}
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
