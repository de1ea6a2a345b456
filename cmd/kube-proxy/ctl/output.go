package ctl

import (
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

// output is the flag --output. It implements pflag.Value.
type output struct {
	format  string
	formats []string
}

// newOutput returns the flag of a command, which may have wide output.
func newOutput(wide bool) *output {
	o := &output{format: formatText, formats: []string{formatText, formatWide, formatJSON, formatYAML}}
	if !wide {
		o.formats = []string{formatText, formatJSON, formatYAML}
	}
	return o
}

// addFlag adds the flag to a command.
func (o *output) addFlag(cmd *cobra.Command) {
	cmd.Flags().VarP(o, "output", "o", "format of the output: "+strings.Join(o.formats, ", "))
	complete(cmd, "output", o.formats...)
}

// complete makes the shell complete the values of a flag.
func complete(cmd *cobra.Command, flag string, values ...string) {
	completions := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	if err := cmd.RegisterFlagCompletionFunc(flag, completions); err != nil {
		panic(err) // the command has no such flag
	}
}

// String implements pflag.Value.
func (o *output) String() string { return o.format }

// Type implements pflag.Value.
func (o *output) Type() string { return "FORMAT" }

// Set implements pflag.Value.
func (o *output) Set(format string) error {
	if !slices.Contains(o.formats, format) {
		return fmt.Errorf("want %s", strings.Join(o.formats, ", "))
	}
	o.format = format
	return nil
}

// write writes an answer in the format. print writes it for people.
func (o *output) write(w io.Writer, answer any, print func(io.Writer) error) error {
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
	return print(w)
}
