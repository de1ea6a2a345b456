package operator

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/table"
)

func newServices() *cobra.Command {
	var flags proxyFlags
	cmd := &cobra.Command{
		Use:   "services [NAMESPACE/NAME]",
		Short: "List the Services that the proxy serves",
		Long: "services lists the frontends of each Service: the addresses and ports at which clients reach it. " +
			"ENDPOINTS are those that the frontend uses, of all that the service port has. " +
			"With a NAMESPACE/NAME, it also lists the endpoints, and why they are not used. " +
			"NAMESPACE/ lists the Services of a namespace. " +
			"With -o wide, it also prints health check NodePorts, or the addresses of NodePorts, EndpointSlices and " +
			"hints.\n\nHeadless Services and Services of another proxy are not listed.",
		Example: "  nftproxy services\n  nftproxy services default/web",
		Args:    argument("NAMESPACE/NAME", true),
		RunE: func(cmd *cobra.Command, args []string) error {
			q, err := serviceQuery(args)
			if err != nil {
				return err
			}
			return flags.listServices(cmd, q)
		},
		ValidArgsFunction: completeService(&flags, ""),
	}
	flags.add(cmd, 30*time.Second)
	return cmd
}

// serviceQuery parses NAMESPACE/NAME or NAMESPACE/.
func serviceQuery(args []string) (q cluster.ServiceName, err error) {
	if len(args) == 0 {
		return q, nil
	}
	namespace, name, ok := strings.Cut(args[0], "/")
	if !ok || namespace == "" || strings.Contains(name, "/") {
		return q, fmt.Errorf("%q is not NAMESPACE/NAME", args[0])
	}
	return cluster.ServiceName{Namespace: namespace, Name: name}, nil
}

// listServices writes the Services of a query. If the answer is not complete,
// it writes those that came before the error.
func (f *proxyFlags) listServices(cmd *cobra.Command, q cluster.ServiceName) error {
	services := []*table.ServiceView{} // an empty list in JSON, not null
	var failed error
	for s, err := range answer.Services.Ask(cmd.Context(), &f.client, q) {
		if failed = err; err == nil {
			services = append(services, s)
		}
	}
	if failed != nil && len(services) == 0 {
		return failed
	}
	err := f.output.write(cmd.OutOrStdout(), services, func(w io.Writer, wide bool) {
		if q.Name != "" && len(services) == 1 {
			printService(w, services[0], wide)
		} else {
			printServices(w, services, wide)
		}
	})
	return errors.Join(err, failed)
}
