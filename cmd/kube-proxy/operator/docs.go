package operator

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Formats of documentation.
const (
	formatMan      = "man"
	formatMarkdown = "markdown"
)

func newDocs(version string) *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use:   "docs DIRECTORY",
		Short: "Write the manual pages of this command",
		Long: "docs writes one page for each command to a directory, from the same text as --help. It creates the " +
			"directory and replaces pages that exist.",
		Example: "  nftproxy docs /usr/local/share/man/man1\n" +
			"  nftproxy docs --format markdown docs",
		Args: argument("the directory", false),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeDocs(cmd.Root(), version, format, args[0])
		},
	}
	cmd.Flags().StringVar(&format, "format", formatMan, "`FORMAT` of the pages: man, markdown")
	complete(cmd, "format", formatMan, formatMarkdown)
	return cmd
}

// writeDocs writes the pages. Pages of man have the month of SOURCE_DATE_EPOCH
// or, without it, the current one.
func writeDocs(root *cobra.Command, version, format, dir string) error {
	if format != formatMan && format != formatMarkdown {
		return misusef("--format %q is unknown: want %s or %s", format, formatMan, formatMarkdown)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root.DisableAutoGenTag = true
	if format == formatMarkdown {
		return doc.GenMarkdownTree(root, dir)
	}
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: Name + " " + version}, dir)
}
