package operator

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// completionTimeout is how long the shell waits for the running proxy.
const completionTimeout = 2 * time.Second

// Directives for the shell. After an incomplete word, it adds no space.
const (
	wordEnds   = cobra.ShellCompDirectiveNoFileComp
	incomplete = wordEnds | cobra.ShellCompDirectiveNoSpace
)

// complete makes the shell complete the values of a flag.
func complete(cmd *cobra.Command, flag string, values ...string) {
	completeWith(cmd, flag, cobra.FixedCompletions(values, wordEnds))
}

func completeWith(cmd *cobra.Command, flag string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, f); err != nil {
		panic(err) // the command has no such flag
	}
}

// completeNamespace completes the namespaces that have Services.
func (f *serviceFlags) completeNamespace(
	cmd *cobra.Command, _ []string, word string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	names, err := f.names(cmd.Context(), "")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return namespaces(names, word, ""), wordEnds
}

// completeServices completes the name of a Service: first "NAMESPACE/" or, with
// the flag --namespace or after some letters, NAME.
func (f *serviceFlags) completeServices(
	cmd *cobra.Command, args []string, word string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.completeDestination(cmd, args, word, false)
}

// completePorts completes the name of a Service, and after ":" its port.
func (f *serviceFlags) completePorts(
	cmd *cobra.Command, args []string, word string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.completeDestination(cmd, args, word, true)
}

func (f *serviceFlags) completeDestination(
	cmd *cobra.Command, args []string, word string, withPorts bool,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, wordEnds
	}
	prefix, rest := "", word
	for _, p := range servicePrefixes {
		if after, ok := strings.CutPrefix(word, p); ok {
			prefix, rest = p, after
		}
	}
	if service, _, ok := strings.Cut(rest, ":"); ok && withPorts {
		return f.portsOf(cmd.Context(), prefix+service, word)
	}
	namespace, _, inNamespace := strings.Cut(rest, "/")
	if !inNamespace {
		namespace = f.namespace
	}
	names, err := f.names(cmd.Context(), namespace)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var found []cobra.Completion
	directive := wordEnds
	if namespace == "" {
		if found = namespaces(names, rest, "/"); len(found) > 0 {
			directive = incomplete
		}
	}
	for _, name := range names {
		text := name.Name
		if inNamespace {
			text = name.String()
		}
		if strings.HasPrefix(text, rest) && (namespace != "" || rest != "") {
			found = append(found, text)
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	for i := range found {
		found[i] = prefix + found[i]
	}
	return found, directive
}

// names returns the names of the Services of a namespace, "" for all.
func (f *serviceFlags) names(ctx context.Context, namespace string) (names []cluster.ServiceName, err error) {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	for name, err := range answer.Names.Ask(ctx, &f.client, namespace) {
		if err != nil {
			return nil, err
		}
		names = append(names, *name)
	}
	return names, nil
}

// namespaces returns the namespaces of Services that begin with a word, with a
// suffix.
func namespaces(names []cluster.ServiceName, word, suffix string) (found []cobra.Completion) {
	for _, name := range names {
		if strings.HasPrefix(name.Namespace, word) {
			found = append(found, name.Namespace+suffix)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// portsOf returns the completions of the port of a Service: names, or numbers
// of ports without a name.
func (f *serviceFlags) portsOf(
	ctx context.Context, service, word string,
) (found []cobra.Completion, _ cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	name, err := f.parseName(service)
	if err != nil {
		return nil, wordEnds
	}
	for s, err := range answer.Services.Ask(ctx, &f.client, name) {
		if err != nil {
			return nil, wordEnds
		}
		for _, p := range s.Ports {
			text := service + ":" + cmp.Or(p.Name, strconv.Itoa(int(p.Port)))
			if strings.HasPrefix(text, word) {
				found = append(found, text)
			}
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(found))), wordEnds
}
