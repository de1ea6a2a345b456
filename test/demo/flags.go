package main

import (
	"fmt"
	"io"

	"github.com/spf13/pflag"
)

// flags are the command's flags.
type flags struct {
	set       *pflag.FlagSet
	kubeProxy string
	name      string
	keep      bool
	help      bool
}

func newFlags() *flags {
	f := &flags{set: pflag.NewFlagSet("demo", pflag.ContinueOnError)}
	f.set.SortFlags = false
	f.set.Usage = func() {}
	f.set.StringVar(&f.kubeProxy, "kube-proxy", "bin/kube-proxy", "The kube-proxy `PROGRAM` that the nodes run.")
	f.set.BoolVar(&f.keep, "keep", false, "Leave the cluster running after the tour, until Ctrl-C, to look around in it.")
	f.set.StringVar(&f.name, "name", "demo",
		"`NAME` that the namespaces begin with (NAME.client, NAME.node1). Tours of different names run side by side.")
	f.set.BoolVarP(&f.help, "help", "h", false, "Print this text and exit.")
	return f
}

// parse reads the command line.
func (f *flags) parse(args []string) error {
	if err := f.set.Parse(args); err != nil {
		return err
	}
	if f.set.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: demo takes flags only", f.set.Arg(0))
	}
	return nil
}

const usage = `demo is the product tour: it lays out a small cluster in network namespaces, runs kube-proxy on its nodes,
shows with real connections what it does, and ends with an error if that is not what it should do.
It needs root, and cleans up behind itself, also when it is interrupted. NO_COLOR is respected.

Usage:
  demo --kube-proxy PROGRAM [--keep]

Flags:
`

func (f *flags) printUsage(w io.Writer) { fmt.Fprint(w, usage, f.set.FlagUsagesWrapped(100)) }
