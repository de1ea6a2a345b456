package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Directives of cobra, which end a list of completions. kubectl passes them on
// to the shell.
const (
	directiveError   = ":1"
	directiveNoFiles = ":4"
	directiveFiles   = ":0"
)

// printCompletions prints the completions of the last argument, and a directive
// on the last line.
func printCompletions(ctx context.Context, args []string, stdout io.Writer) {
	last := ""
	if n := len(args); n > 0 {
		args, last = args[:n-1], args[n-1]
	}
	lines, directive := completions(ctx, args, last)
	for _, line := range append(lines, directive) {
		fmt.Fprintln(stdout, line)
	}
}

// completions returns the completions of the word last after args.
func completions(ctx context.Context, args []string, last string) (lines []string, directive string) {
	set, _ := new(arguments).flags()
	flag, value, isFlag := strings.Cut(last, "=")
	if n := len(args); n > 0 && takesValue(lookup(set, args[n-1])) {
		args, flag, value, isFlag = args[:n-1], args[n-1], last, true
	}
	a, err := parse(args)
	if err != nil {
		return nil, directiveError
	}
	a.connection = append(a.connection, "--request-timeout=5s")
	k, err := newKubectl(a)
	if err != nil {
		return nil, directiveError
	}
	if f := lookup(set, flag); isFlag && takesValue(f) {
		return k.completeValue(ctx, a, f.Name, value)
	}
	lines, directive = k.completeInPod(ctx, a, last)
	if strings.HasPrefix(last, "-") {
		set.VisitAll(func(f *pflag.Flag) {
			if name := "--" + f.Name; strings.HasPrefix(name, last) && f.Name != "help" && f.Name != "version" {
				lines = append(lines, name)
			}
		})
	}
	return lines, directive
}

// completeValue completes the value of a flag of the plugin.
func (k kubectl) completeValue(ctx context.Context, a arguments, flag, value string) ([]string, string) {
	switch flag {
	case "node":
		pods, err := k.pods(ctx, a.selector)
		if err != nil {
			return nil, directiveError
		}
		var nodes []string
		for _, p := range pods {
			nodes = append(nodes, p.node)
		}
		return withPrefix(nodes, value), directiveNoFiles
	case "namespace":
		return k.completeNames(ctx, value, "get", "namespaces", "--output=name")
	case "context":
		return k.completeNames(ctx, value, "config", "get-contexts", "--output=name")
	case "kubeconfig", "certificate-authority", "client-certificate", "client-key":
		return nil, directiveFiles
	}
	return nil, directiveNoFiles
}

// completeNames completes a name of the output of kubectl, which can have the
// prefix "namespace/".
func (k kubectl) completeNames(ctx context.Context, value string, args ...string) ([]string, string) {
	out, err := k.output(ctx, args...)
	if err != nil {
		return nil, directiveError
	}
	names := strings.Fields(strings.ReplaceAll("\n"+string(out), "\nnamespace/", "\n"))
	return withPrefix(names, value), directiveNoFiles
}

// completeInPod returns the completions of the nftproxy in a pod, which knows
// its verbs and flags.
func (k kubectl) completeInPod(ctx context.Context, a arguments, last string) ([]string, string) {
	pods, err := k.pods(ctx, a.selector)
	if err != nil {
		return nil, directiveError
	}
	a.command = append(a.command, last)
	a.nodes = a.nodes[:min(len(a.nodes), 1)]
	for _, p := range pods {
		if p.problem != "" || len(a.nodes) > 0 && p.node != a.nodes[0] {
			continue
		}
		var out buffer
		r := k.exec(ctx, p, streams{stdout: &out, stderr: io.Discard}, append([]string{"__complete"}, a.command...))
		lines := strings.Split(strings.TrimSpace(string(out.data)), "\n")
		if n := len(lines) - 1; r.problem == "" && r.code == 0 && strings.HasPrefix(lines[n], ":") {
			return lines[:n], lines[n]
		}
		return nil, directiveError
	}
	return nil, directiveError
}

func withPrefix(words []string, prefix string) []string {
	return slices.DeleteFunc(words, func(word string) bool { return !strings.HasPrefix(word, prefix) })
}
