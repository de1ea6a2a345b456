package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/cmd/printable"
	"github.com/nftproxy/nftproxy/proxier/suggest"
)

// Config configures the command.
type Config struct {
	Version        string
	Stdout, Stderr io.Writer

	terminal terminal // Stdout without escapes
}

// Main runs the command with args and returns its exit code: 0 if it has an
// answer, 1 after an error, 2 after an error of the command line, or that which
// the help of the command names.
func Main(config Config, args []string) int {
	t, _ := config.Stdout.(*os.File)
	config.terminal = terminal{t}
	config.Stdout, config.Stderr = printable.NewWriter(config.Stdout), printable.NewWriter(config.Stderr)
	root := newRoot(config)
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	exit := exitError{code: 1, err: err}
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.err == nil:
	default:
		fmt.Fprintf(config.Stderr, "%s: %v\n", Name, err)
	}
	return exit.code
}

func newRoot(config Config) *cobra.Command {
	root := &cobra.Command{
		Use:   Name,
		Short: "Ask nftproxy about the Services of this node",
		Long: "nftproxy answers questions about the Services of this node. It asks the running proxy or reads the " +
			"rules in the kernel. Only trace and top add rules, which change no packet. It must run as root, with " +
			"CAP_NET_ADMIN, in the network namespace of the node.",
		SilenceErrors:      true, // Main prints them
		SilenceUsage:       true,
		DisableSuggestions: true, // an error is one line
	}
	root.SetOut(config.Stdout)
	root.SetErr(config.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd == root {
			err = fmt.Errorf("%w: the command that serves, with the flags of kube-proxy, is kube-proxy", err)
		}
		return misuse(err)
	})
	root.AddCommand(newCheck(), newDocs(config.Version), newDoctor(config.Version), newExplain(), newHistory(),
		newServices(), newStatus(config.Version), newTop(config.terminal), newTrace(), newVersion(config.Version),
		moved("diff", "`nftproxy doctor` compares the tables in the kernel, `nftproxy doctor --rows` all rows"),
		moved("flows", "`nftproxy top SERVICE -o wide` counts the connections of each endpoint by state"))
	root.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		var verbs []string
		for _, c := range root.Commands() {
			if !c.Hidden {
				verbs = append(verbs, c.Name())
			}
		}
		if meant, ok := suggest.Closest(args[0], verbs...); ok {
			return fmt.Errorf("unknown command %q; did you mean %s?", args[0], meant)
		}
		return fmt.Errorf("unknown command %q; %s --help lists the commands", args[0], Name)
	}
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Args = func(_ *cobra.Command, args []string) error {
				if found, rest, err := root.Find(args); err != nil || found == root {
					return root.Args(root, rest)
				}
				return nil
			}
		case "completion":
			c.RunE = root.RunE // checks the arguments, unlike a command that does nothing
		}
	}
	checkArguments(root)
	return root
}

// moved returns a command of an earlier version, which only prints where its
// function went.
func moved(name, to string) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: to, Hidden: true, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error { return misusef("%s does not exist any more: %s", name, to) },
	}
}

func newVersion(v string) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this command",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.write(cmd.OutOrStdout(), map[string]string{"version": v},
				func(w io.Writer, _ bool) { fmt.Fprintln(w, Name, v) })
		},
	}
	out.addFlag(cmd)
	return cmd
}
