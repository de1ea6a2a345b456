package operator

import (
	"context"
	"iter"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/doctor"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
)

// exitUnhealthy is the exit code of doctor if a check warns or fails.
const exitUnhealthy = 1

func newDoctor(version string) *cobra.Command {
	config := doctor.Config{Version: version}
	var flags proxyFlags
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this node for conditions that make Services fail",
		Long: "doctor checks the kernel, its settings, and what other programs have configured on this node. For " +
			"each finding it prints the reason and a remedy. The result of a check is ok, info, warn, fail, or " +
			"skipped if it cannot be known. docs/checks.md explains each check. Checks that need a running proxy " +
			"are skipped without one.\n\n" +
			"One check compares the tables in the kernel with those that the proxy wants, for a second. --rows " +
			"compares all rows, which can take minutes, and lists all differences: the proxy reads 256 rows at a " +
			"time between syncs, and uses at most a fifth of a core. The rows of sets with more than 4096 rows are " +
			"not listed: Linux 6.15 and later report how many extra rows such a set has, earlier kernels do not. " +
			"Sets of clients with session affinity are not compared.\n\n" +
			"doctor changes nothing. One check sends the kernel a transaction that it aborts, and one probes some " +
			"endpoints of Services, with a SYN that completes no handshake.\n\n" +
			"The exit code is 1 if a check warns or fails. For bug reports, use -o json.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config.Proxy, config.ProxyError = flags.status(cmd.Context(), time.Second)
			config.Services = func(ctx context.Context) iter.Seq2[*table.ServiceView, error] {
				return answer.Services.Ask(ctx, &flags.client, cluster.ServiceName{})
			}
			config.Endpoints = func(ctx context.Context) iter.Seq2[*answer.PortEndpoints, error] {
				return answer.Endpoints.Ask(ctx, &flags.client, struct{}{})
			}
			config.Differences = func(ctx context.Context) iter.Seq2[*keep.DiffStep, error] {
				return answer.Diff.Ask(ctx, &flags.client, struct{}{})
			}
			config.Nodes = func(ctx context.Context) iter.Seq2[*answer.NodeEndpoints, error] {
				return answer.Nodes.Ask(ctx, &flags.client, struct{}{})
			}
			r := doctor.Run(cmd.Context(), config)
			err := flags.output.write(cmd.OutOrStdout(), r, r.Print)
			if err == nil && r.Bad() {
				err = exitError{code: exitUnhealthy}
			}
			return err
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags.add(cmd, 10*time.Second)
	cmd.Flags().BoolVar(&config.AllRows, "rows", false, "compare all rows with the kernel, within 10m by default")
	cmd.PreRun = func(cmd *cobra.Command, _ []string) {
		if config.AllRows && !cmd.Flags().Changed("timeout") {
			flags.timeout = 10 * time.Minute
		}
	}
	cmd.Flags().BoolVar(&config.Fast, "fast", false, "leave out the checks that can take more than a few milliseconds")
	return cmd
}

// status returns the status of the running proxy. Its own timeout leaves time
// for the checks if the proxy does not answer.
func (f *proxyFlags) status(ctx context.Context, timeout time.Duration) (*answer.ProxyStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return answer.Status.AskOne(ctx, &f.client, struct{}{})
}
