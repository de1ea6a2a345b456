package operator

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// completionTimeout is how long the shell waits for the running proxy.
const completionTimeout = 2 * time.Second

// complete makes the shell complete the values of a flag.
func complete(cmd *cobra.Command, flag string, values ...string) {
	completions := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc(flag, completions); err != nil {
		panic(err) // the command has no such flag
	}
}

// servicePrefix is the beginning of a destination that is a Service.
const servicePrefix = "svc/"

// completeService returns a function that completes an argument with the
// Services of the running proxy: first "NAMESPACE/", and then "NAMESPACE/NAME",
// after a prefix.
func completeService(flags *proxyFlags, prefix string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		incomplete := cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		service, ok := strings.CutPrefix(word, prefix)
		switch {
		case len(args) > 0 || !ok && !strings.HasPrefix(prefix, word):
			return nil, cobra.ShellCompDirectiveNoFileComp
		case !ok:
			return []cobra.Completion{prefix}, incomplete
		}
		namespace, _, inNamespace := strings.Cut(service, "/")
		if !inNamespace {
			namespace = ""
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		var names []cobra.Completion
		for s, err := range answer.Services.Ask(ctx, &flags.client, cluster.ServiceName{Namespace: namespace}) {
			if err != nil {
				return nil, cobra.ShellCompDirectiveError
			}
			name := prefix + s.Namespace + "/"
			if inNamespace {
				name += s.Name
			}
			if strings.HasPrefix(name, word) {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		if !inNamespace {
			return slices.Compact(names), incomplete
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
