package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/node"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/proxier/cluster"
)

// proxyFlags are the flags of a command that asks the running proxy.
type proxyFlags struct {
	client  socket.Client
	timeout time.Duration
	watch   bool // see addWatch
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
			return misusef("--timeout %v is not greater than 0", f.timeout)
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
		if f.watch {
			ctx, cancel = interruptible(cmd.Context())
		}
		defer cancel()
		cmd.SetContext(ctx)
		return run(cmd, args)
	}
}

// destinationFlags are the flags of a command about packets or connections.
type destinationFlags struct {
	serviceFlags
	from, protocolName string
	protocol           cluster.Protocol // 0 without --protocol
	sources            []netip.Addr     // see parseFrom
}

// addFrom adds the flag --from.
func (f *destinationFlags) addFrom(cmd *cobra.Command, usage string) {
	cmd.Flags().StringVar(&f.from, "from", "", "`SOURCE` of the "+usage)
	complete(cmd, "from", node.FromPod, node.FromNode, node.FromOutside)
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
	return misuse(err)
}

// Formats of output.
const (
	formatText = "text"
	formatWide = "wide"
	formatJSON = "json"
	formatYAML = "yaml"
	formatName = "name" // of some commands
)

// formats are all formats. Wide output is text, in some commands with
// more details.
var formats = []string{formatText, formatWide, formatJSON, formatYAML}

// output is the flag --output. It implements pflag.Value.
type output struct {
	format string
	names  bool // formatName is possible
}

// addFlag adds the flag to a command.
func (o *output) addFlag(cmd *cobra.Command) {
	o.format = formatText
	cmd.Flags().VarP(o, "output", "o", "format of the output: "+strings.Join(formats, ", "))
	completeWith(cmd, "output", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return o.formats(), wordEnds
	})
}

// addNames adds the format of names to the flag of a command.
func (o *output) addNames(cmd *cobra.Command) {
	o.names = true
	cmd.Flag("output").Usage = "format of the output: " + strings.Join(o.formats(), ", ")
}

// formats returns the formats of the command.
func (o *output) formats() []string {
	if o.names {
		return append(formats[:len(formats):len(formats)], formatName)
	}
	return formats
}

// String implements pflag.Value.
func (o *output) String() string { return o.format }

// Type implements pflag.Value.
func (o *output) Type() string { return "FORMAT" }

// Set implements pflag.Value.
func (o *output) Set(format string) error {
	if !slices.Contains(o.formats(), format) {
		return fmt.Errorf("want %s", strings.Join(o.formats(), ", "))
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
