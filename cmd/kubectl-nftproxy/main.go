package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/nftproxy/nftproxy/cmd/printable"
)

// version is the version of the plugin. The linker sets it in releases.
var version = "v0.2.0"

// completer is the name under which kubectl runs the plugin for completions.
const completer = "kubectl_complete-nftproxy"

// Exit codes of the plugin. A verb has the exit code of nftproxy.
const (
	exitError       = 1
	exitMisuse      = 2
	exitUnreachable = 2 // the verb did not run on a node
)

func main() {
	// kubectl has the same terminal and gets the same interrupt. It ends the
	// command in the pod, and this process waits for it.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	os.Exit(plugin(context.Background(), os.Args, os.Stdout, os.Stderr))
}

// plugin runs the plugin under the name that is its first argument, and returns
// its exit code.
func plugin(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	stdout, stderr = printable.NewWriter(stdout), printable.NewWriter(stderr)
	if name := strings.TrimSuffix(filepath.Base(args[0]), ".exe"); name == completer {
		printCompletions(ctx, args[1:], stdout)
		return 0
	}
	code, err := run(ctx, args[1:], stdout, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "kubectl nftproxy: %v\n", err)
	}
	return code
}

// run runs a verb or prints help, and returns its exit code. An error is not
// printed yet.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (int, error) {
	a, err := parse(args)
	if err != nil {
		return exitMisuse, err
	}
	switch {
	case a.version:
		fmt.Fprintln(stdout, "kubectl-nftproxy", version)
		return 0, nil
	case a.help || len(a.command) == 0 || len(a.command) == 1 && a.command[0] == "help":
		fmt.Fprint(stdout, help())
		return 0, nil
	case a.watches() && a.manyNodes():
		return exitMisuse, errors.New("--watch needs one node: give it as --node NODE")
	}
	if err := a.checkVerb(); err != nil {
		return exitMisuse, err
	}
	k, err := newKubectl(a)
	if err != nil {
		return exitError, err
	}
	pods, err := k.pods(ctx, a.selector)
	if err != nil {
		return exitError, err
	}
	if pod := a.pod(); pod != "" {
		node, address, err := k.find(ctx, pod)
		if err != nil {
			return exitError, err
		}
		a.nodes = []string{node}
		a.from(pod, address)
	}
	chosen, err := choose(a, pods)
	if err != nil {
		return exitError, err
	}
	if len(chosen) == 1 && !a.manyNodes() {
		ctx, cancel := a.withTimeout(ctx)
		defer cancel()
		return k.runOne(ctx, chosen[0], a.command, stdout, stderr), nil
	}
	return k.runAll(ctx, chosen, a, stdout, stderr), nil
}
