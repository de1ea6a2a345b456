package operator

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// version is the output of the command version.
type version struct {
	Version string `json:"version"`
}

func newVersion(v string) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this command",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.write(cmd.OutOrStdout(), version{v}, func(w io.Writer, _ bool) { fmt.Fprintln(w, Name, v) })
		},
	}
	out.addFlag(cmd)
	return cmd
}
