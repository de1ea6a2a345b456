package ctl

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// Name is the name under which the binary is this command.
const Name = "nftproxy"

// Config configures the command.
type Config struct {
	Version        string
	Stdout, Stderr io.Writer
}

// Main runs the command with args and returns its exit code: 0 if it has an
// answer, 1 after an error.
func Main(config Config, args []string) int {
	root := newRoot(config)
	root.SetArgs(args)
	if err := root.Execute(); err != nil {
		fmt.Fprintf(config.Stderr, "%s: %v\n", Name, err)
		return 1
	}
	return 0
}

func newRoot(config Config) *cobra.Command {
	root := &cobra.Command{
		Use:   Name,
		Short: "Ask nftproxy about the Services of this node",
		Long: "nftproxy answers questions about the Services of this node. It reads the rules in the kernel and changes " +
			"nothing. It needs CAP_NET_ADMIN in the network namespace of the node.",
		SilenceErrors: true, // Main prints them
		SilenceUsage:  true,
	}
	root.SetOut(config.Stdout)
	root.SetErr(config.Stderr)
	root.AddCommand(newExplain(), newVersion(config.Version))
	return root
}
