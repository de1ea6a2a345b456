package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Defaults for nftproxy in the DaemonSet of kubeadm, and in that of deploy/.
const (
	defaultNamespace = "kube-system"
	defaultSelector  = "k8s-app=kube-proxy"
)

// overviewTimeout is how long status, doctor and version wait for a node.
const overviewTimeout = 30 * time.Second

// arguments are the arguments of the plugin.
type arguments struct {
	nodes               []string
	allNodes            bool
	namespace, selector string
	nodeTimeout         time.Duration // 0 if there is no --node-timeout
	help, version       bool
	connection          []string // flags of kubectl
	command             []string // the verb, with its arguments and flags
}

// ownFlags returns the flags of the plugin itself that have a value.
func ownFlags() []string { return []string{"--node", "--node-timeout", "--namespace", "--selector"} }

// connectionFlags returns the flags with a value that kubectl uses to connect
// to the API server.
func connectionFlags() []string {
	return []string{
		"--kubeconfig", "--context", "--cluster", "--user", "--server", "--token", "--as", "--as-group", "--as-uid",
		"--certificate-authority", "--client-certificate", "--client-key", "--tls-server-name", "--request-timeout",
	}
}

// takesValue reports whether an argument is a flag of the plugin that has a
// value.
func takesValue(arg string) bool {
	name := longName(arg)
	return slices.Contains(ownFlags(), name) || slices.Contains(connectionFlags(), name)
}

// Flags without a value.
const (
	allNodes = "--all-nodes"
	insecure = "--insecure-skip-tls-verify" // of kubectl
)

// longName returns the long name of a flag, or the argument itself.
func longName(arg string) string {
	switch arg {
	case "-n":
		return "--namespace"
	case "-l":
		return "--selector"
	case "-s":
		return "--server"
	case "-h":
		return "--help"
	}
	return arg
}

// parse separates the flags of the plugin, which can be at any place before
// "--", from the command. --help and --version after the verb belong to it.
func parse(args []string) (arguments, error) {
	a := arguments{namespace: defaultNamespace, selector: defaultSelector}
	for len(args) > 0 && args[0] != "--" {
		n, err := a.take(args)
		if err != nil {
			return arguments{}, err
		}
		args = args[n:]
	}
	a.command = append(a.command, args...)
	return a, nil
}

// take takes the first of the arguments, or a flag with its value. It returns
// how many arguments it took.
func (a *arguments) take(args []string) (int, error) {
	name, value, hasValue := strings.Cut(args[0], "=")
	name = longName(name)
	n := 1
	if takesValue(name) && !hasValue {
		if len(args) == 1 {
			return 0, fmt.Errorf("flag needs a value: %s", name)
		}
		n, value = 2, args[1]
	}
	beforeVerb := len(a.command) == 0
	switch {
	case slices.Contains(connectionFlags(), name):
		a.connection = append(a.connection, name+"="+value)
	case name == insecure:
		a.connection = append(a.connection, args[0])
	case name == "--node":
		a.nodes = append(a.nodes, strings.Split(value, ",")...)
	case name == "--node-timeout":
		var err error
		if a.nodeTimeout, err = time.ParseDuration(value); err != nil || a.nodeTimeout <= 0 {
			return 0, fmt.Errorf("--node-timeout %q is not a time greater than 0, such as 10s", value)
		}
	case name == "--namespace":
		a.namespace = value
	case name == "--selector":
		a.selector = value
	case name == allNodes:
		a.allNodes = true
	case name == "--help" && beforeVerb:
		a.help = true
	case name == "--version" && beforeVerb:
		a.version = true
	case strings.HasPrefix(name, "-") && beforeVerb:
		return 0, fmt.Errorf("unknown flag before the verb: %s", args[0])
	default:
		a.command = append(a.command, args[0])
	}
	return n, nil
}

// manyNodes reports whether the output names the node of each answer.
func (a *arguments) manyNodes() bool {
	return a.allNodes || len(a.nodes) > 1 ||
		len(a.nodes) == 0 && a.isOverview() && !a.isHelp()
}

// isOverview reports whether the verb runs on all nodes by default. It is fast.
func (a *arguments) isOverview() bool {
	return slices.Contains([]string{"status", "doctor", "version"}, a.command[0])
}

// withTimeout returns a context for the command on one node.
func (a *arguments) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := a.nodeTimeout
	if limit == 0 && a.isOverview() {
		limit = overviewTimeout
	}
	if limit == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
}

// isHelp reports whether the command prints help, which is the same on all
// nodes.
func (a *arguments) isHelp() bool {
	return a.command[0] == "help" || slices.Contains(a.command, "--help") || slices.Contains(a.command, "-h")
}

// format returns the value of the flag --output of the command, "" if it has
// none.
func (a *arguments) format() string {
	for i, arg := range a.command {
		for _, prefix := range []string{"--output=", "-o=", "-o"} {
			if value, ok := strings.CutPrefix(arg, prefix); ok && value != "" {
				return value
			}
		}
		if (arg == "--output" || arg == "-o") && i+1 < len(a.command) {
			return a.command[i+1]
		}
	}
	return ""
}
