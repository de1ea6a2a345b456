package operator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

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
