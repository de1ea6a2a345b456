package operator

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/check"
	"github.com/nftproxy/nftproxy/proxier/manifest"
)

// Exit codes of check.
const (
	exitInvalid    = 1
	exitUnreadable = 2
)

func newCheck() *cobra.Command {
	var out output
	var node string
	cmd := &cobra.Command{
		Use:   "check DIRECTORY",
		Short: "Validate a folder of manifests, and show what would be served",
		Long: "check reads a folder of manifests as kube-proxy --manifests does. It prints the problems with their " +
			"file, line, object and field, and the frontends that would be served. It needs neither root nor a " +
			"running proxy, and changes nothing.\n\n" +
			"The exit code is 0 if there is no problem, 1 if there is one, and 2 if the folder cannot be read. " +
			"Warnings, and files and folders that are ignored, do not change it.",
		Example: "  nftproxy check /etc/services.d\n  nftproxy check deploy/services -o json",
		Args:    argument("the folder", false),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := check.Run(args[0], node)
			if err != nil {
				return exitError{exitUnreadable, err}
			}
			err = out.write(cmd.OutOrStdout(), r, func(w io.Writer, wide bool) { printCheck(w, r, wide) })
			if err == nil && r.ProblemCount > 0 {
				err = exitError{code: exitInvalid}
			}
			return err
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	cmd.Flags().StringVar(&node, "node", "", "`NAME` of this node (default the only Node of the folder)")
	out.addFlag(cmd)
	return cmd
}

// printCheck writes the result for people.
func printCheck(w io.Writer, r *check.Result, wide bool) {
	fmt.Fprintf(w, "MANIFESTS  %s: files %d, objects %d, problems %d\n", r.Dir, r.Files, r.Objects, r.ProblemCount)
	printList(w, "PROBLEMS", len(r.Problems), textsOf(r.Problems))
	printList(w, "FILES WITH AN ERROR, OF WHICH NO OBJECT IS SERVED", len(r.Invalid), r.Invalid)
	printList(w, "WARNINGS", len(r.Warnings), textsOf(r.Warnings))
	printList(w, "IGNORED FILES AND FOLDERS", len(r.Ignored), r.Ignored)
	fmt.Fprintln(w)
	printServices(w, r.Services, wide)
}

func textsOf(problems []manifest.Problem) (texts []string) {
	for _, p := range problems {
		texts = append(texts, p.Text)
	}
	return texts
}
