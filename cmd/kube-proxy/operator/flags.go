package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
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

// Formats of output.
const (
	formatText = "text"
	formatWide = "wide"
	formatJSON = "json"
	formatYAML = "yaml"
)

// formats are all formats. Wide output is text, in some commands with
// more details.
var formats = []string{formatText, formatWide, formatJSON, formatYAML}

// output is the flag --output. It implements pflag.Value.
type output struct{ format string }

// addFlag adds the flag to a command.
func (o *output) addFlag(cmd *cobra.Command) {
	o.format = formatText
	cmd.Flags().VarP(o, "output", "o", "format of the output: "+strings.Join(formats, ", "))
	complete(cmd, "output", formats...)
}

// String implements pflag.Value.
func (o *output) String() string { return o.format }

// Type implements pflag.Value.
func (o *output) Type() string { return "FORMAT" }

// Set implements pflag.Value.
func (o *output) Set(format string) error {
	if !slices.Contains(formats, format) {
		return fmt.Errorf("want %s", strings.Join(formats, ", "))
	}
	o.format = format
	return nil
}

// forPeople reports whether the output is text.
func (o *output) forPeople() bool { return o.format == formatText || o.format == formatWide }

// write writes an answer in the format. print writes it for people, with all
// details if wide is set, to a buffer.
func (o *output) write(w io.Writer, answer any, print func(w io.Writer, wide bool)) error {
	switch o.format {
	case formatJSON:
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false) // rules contain &
		encoder.SetIndent("", "  ")
		return encoder.Encode(answer)
	case formatYAML:
		data, err := yaml.Marshal(answer)
		if err == nil {
			_, err = w.Write(data)
		}
		return err
	}
	var text bytes.Buffer
	print(&text, o.format == formatWide)
	_, err := text.WriteTo(w)
	return err
}

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
