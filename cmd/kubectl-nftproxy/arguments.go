package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/proxier/suggest"
)

// Defaults for nftproxy in the DaemonSets of kubeadm and of deploy/.
const (
	defaultNamespace = "kube-system"
	defaultSelector  = "k8s-app=kube-proxy"
)

// overviewTimeout is how long verbs that run everywhere wait for a node.
// Commands that repeat their output have no limit.
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

// flags declares the flags of the plugin, and the flags with which kubectl
// connects to the API server.
func (a *arguments) flags() (set, connection *pflag.FlagSet) {
	set, connection = new(pflag.FlagSet), new(pflag.FlagSet)
	set.StringSliceVar(&a.nodes, "node", nil, "")
	set.String("node-timeout", "", "")
	set.StringVarP(&a.namespace, "namespace", "n", defaultNamespace, "")
	set.StringVarP(&a.selector, "selector", "l", defaultSelector, "")
	set.BoolVar(&a.allNodes, "all-nodes", false, "")
	set.BoolVarP(&a.help, "help", "h", false, "")
	set.BoolVar(&a.version, "version", false, "")
	for _, name := range []string{
		"kubeconfig", "context", "cluster", "user", "token", "as", "as-group", "as-uid", "certificate-authority",
		"client-certificate", "client-key", "tls-server-name", "request-timeout",
	} {
		connection.String(name, "", "")
	}
	connection.StringP("server", "s", "", "")
	connection.Bool("insecure-skip-tls-verify", false, "")
	set.AddFlagSet(connection)
	return set, connection
}

// lookup returns the flag that an argument names, nil if it names none.
func lookup(set *pflag.FlagSet, arg string) *pflag.Flag {
	name, _, _ := strings.Cut(arg, "=")
	if long, ok := strings.CutPrefix(name, "--"); ok {
		return set.Lookup(long)
	}
	if len(name) == 2 && name[0] == '-' {
		return set.ShorthandLookup(name[1:])
	}
	return nil
}

// takesValue reports whether the next argument is the value of a flag.
func takesValue(f *pflag.Flag) bool { return f != nil && f.NoOptDefVal == "" }

// verb is a verb of nftproxy.
type verb struct {
	name, about string
	everywhere  bool // runs on all nodes by default: it is fast
	ofServices  bool // takes the flag --namespace for the namespace of a Service
}

var verbs = []verb{
	{"status", "state of nftproxy", true, false},
	{"doctor", "checks of the nodes", true, false},
	{"version", "version of nftproxy", true, false},
	{"services", "Services that nftproxy serves", true, true},
	{"history", "what changed, when and why", true, true},
	{"top", "connections now, by Service and endpoint", true, true},
	{"explain", "where a connection goes, and why", false, true},
	{"trace", "rules that real packets pass", false, true},
}

// verb returns the verb of the command, a zero one if the plugin does not know
// it.
func (a *arguments) verb() (v verb) {
	if i := slices.IndexFunc(verbs, func(v verb) bool { return v.name == a.command[0] }); i >= 0 {
		v = verbs[i]
	}
	return v
}

// podPrefix is the beginning of a reference to a pod, pod/NAMESPACE/NAME.
const podPrefix = "pod/"

// pod returns the reference to a pod whose node the command is about: the
// client's or, without one, the destination. It is "" if there is none, or if
// the command names its nodes.
func (a *arguments) pod() (found string) {
	if a.allNodes || len(a.nodes) > 0 || a.verb().everywhere {
		return ""
	}
	for i, arg := range a.command {
		if from, ok := strings.CutPrefix(arg, "--from="); ok {
			arg = from
		} else if i == 0 || a.command[i-1] != "--from" {
			found = cmp.Or(found, reference(arg))
			continue
		}
		if reference(arg) != "" {
			return arg
		}
	}
	return found
}

// from replaces a pod in --from by its address: the client may be no endpoint.
func (a *arguments) from(pod, address string) {
	for i, arg := range a.command {
		switch {
		case arg == "--from="+pod:
			a.command[i] = "--from=" + address
		case arg == pod && a.command[i-1] == "--from":
			a.command[i] = address
		}
	}
}

// reference returns an argument that is a reference to a pod, "" for others.
func reference(arg string) string {
	if strings.HasPrefix(arg, podPrefix) {
		return arg
	}
	return ""
}

// checkVerb returns an error if the plugin does not know the verb, unless a
// node is named: a pod of another version can know it.
func (a *arguments) checkVerb() error {
	other := a.isHelp() || strings.HasPrefix(a.command[0], "__") || a.allNodes || len(a.nodes) > 0
	if a.verb().name != "" || other {
		return nil
	}
	text := fmt.Sprintf("unknown verb %q", a.command[0])
	var names []string
	for _, v := range verbs {
		names = append(names, v.name)
	}
	if meant, ok := suggest.Closest(a.command[0], names...); ok {
		return fmt.Errorf("%s; did you mean %s?", text, meant)
	}
	return fmt.Errorf("%s; want %s", text, strings.Join(names, ", "))
}

// takes reports whether a flag of the plugin belongs to the verb, after which
// it is.
func (a *arguments) takes(flag string) bool {
	switch flag {
	case "help", "version":
		return true
	case "namespace":
		return a.verb().ofServices
	}
	return false
}

// parse separates the flags of the plugin, which can be at any place before
// "--", from the command. Some flags after the verb belong to it.
func parse(args []string) (arguments, error) {
	var a arguments
	set, connection := a.flags()
	var own []string
	for len(args) > 0 && args[0] != "--" {
		f, n := lookup(set, args[0]), 1
		switch {
		case len(a.command) > 0 && f != nil && a.takes(f.Name):
			f = nil
		case len(a.command) == 0 && f == nil && strings.HasPrefix(args[0], "-"):
			return arguments{}, fmt.Errorf("unknown flag before the verb: %s", args[0])
		case takesValue(f) && !strings.Contains(args[0], "="):
			if n = 2; len(args) < n {
				return arguments{}, fmt.Errorf("flag needs a value: --%s", f.Name)
			}
		}
		switch {
		case f == nil:
			a.command = append(a.command, args[0])
		case connection.Lookup(f.Name) != nil:
			a.connection = append(a.connection, args[:n]...)
		default:
			own = append(own, args[:n]...)
		}
		args = args[n:]
	}
	a.command = append(a.command, args...)
	if err := set.Parse(own); err != nil {
		return arguments{}, err
	}
	if f := set.Lookup("node-timeout"); f.Changed {
		var err error
		if a.nodeTimeout, err = time.ParseDuration(f.Value.String()); err != nil || a.nodeTimeout <= 0 {
			return arguments{}, fmt.Errorf("--node-timeout %q is not a time greater than 0, such as 10s", f.Value)
		}
	}
	return a, nil
}

// manyNodes reports whether the output names the node of each answer.
func (a *arguments) manyNodes() bool {
	return a.allNodes || len(a.nodes) > 1 ||
		len(a.nodes) == 0 && a.verb().everywhere && !a.isHelp()
}

// withTimeout returns a context for the command on one node.
func (a *arguments) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := a.nodeTimeout
	if limit == 0 && a.verb().everywhere && !a.isLong() && (a.manyNodes() || a.command[0] != "top") {
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

// summary returns the function that prints the answers of several nodes, which
// are JSON, as one, nil if there is none, or if the command has a format.
func (a *arguments) summary() func(stdout io.Writer, pods []pod, answers []answer, wide bool) {
	wide := a.format() == "wide"
	switch {
	case !a.manyNodes() || a.format() != "" && !wide || a.isHelp():
	case a.command[0] == "status" && !wide:
		return printSummary
	case a.command[0] == "doctor":
		return printFindings
	case a.command[0] == "top":
		return printTop
	}
	return nil
}

// table returns the first column of the table of a verb whose tables can be
// printed as one, "" for other verbs and formats.
func (a *arguments) table() string {
	if a.format() != "" && a.format() != "wide" {
		return ""
	}
	return map[string]string{"services": "SERVICE PORT", "history": "TIME"}[a.command[0]]
}

// watches reports whether the command does not end by itself.
func (a *arguments) watches() bool {
	return slices.Contains(a.command, "-w") || slices.Contains(a.command, "--watch")
}

// isLong reports whether the command can take longer than overviewTimeout.
func (a *arguments) isLong() bool { return a.watches() || slices.Contains(a.command, "--rows") }

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
