package main

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		args, nodes, command, connection, namespace string
	}{
		{"status", "", "status", "", "kube-system"},
		{"-n nftproxy --node a,b --node=c status", "a b c", "status", "", "nftproxy"},
		{"explain svc/web --from pod --node a", "a", "explain svc/web --from pod", "", "kube-system"},
		{"--context=one explain --kubeconfig two -o json", "", "explain -o json",
			"--context=one --kubeconfig two", "kube-system"},
		{"-s https://a:1 trace --insecure-skip-tls-verify -v", "", "trace -v",
			"-s https://a:1 --insecure-skip-tls-verify", "kube-system"},
		{"-n nftproxy explain web -n shop -A", "", "explain web -n shop -A", "", "nftproxy"},
		{"status -n nftproxy", "", "status", "", "nftproxy"},
		{"explain --help --version", "", "explain --help --version", "", "kube-system"},
		{"explain -- --node a", "", "explain -- --node a", "", "kube-system"},
	} {
		a, err := parse(strings.Fields(tt.args))
		got := []string{
			strings.Join(a.nodes, " "), strings.Join(a.command, " "), strings.Join(a.connection, " "), a.namespace,
		}
		if want := []string{tt.nodes, tt.command, tt.connection, tt.namespace}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v; want %q", tt.args, got, err, want)
		}
	}
	for args, want := range map[string]string{
		"--verbose status": "unknown flag before the verb: --verbose",
		"status --node":    "flag needs a value: --node",
		"-n":               "flag needs a value: --namespace",
	} {
		if _, err := parse(strings.Fields(args)); err == nil || err.Error() != want {
			t.Errorf("%s: got error %v, want %s", args, err, want)
		}
	}
}

func TestFormat(t *testing.T) {
	for command, want := range map[string]string{
		"status": "", "status -o json": "json", "status -ojson": "json", "status -o=yaml": "yaml",
		"status --output wide": "wide", "status --output=yaml": "yaml", "status -o": "",
	} {
		a := arguments{command: strings.Fields(command)}
		if got := a.format(); got != want {
			t.Errorf("%s: got format %q, want %q", command, got, want)
		}
	}
}

// On one node, top has no time limit, nor has a command that watches.
func TestTimeout(t *testing.T) {
	for commandLine, limited := range map[string]bool{
		"top": true, "top --node a": false, "top --node a,b": true,
		"doctor": true, "doctor --rows": false, "history --node a": true, "history -w --node a": false,
	} {
		a, err := parse(strings.Fields(commandLine))
		ctx, cancel := a.withTimeout(t.Context())
		defer cancel()
		if _, got := ctx.Deadline(); err != nil || got != limited {
			t.Errorf("%s: got a limit %v, %v, want %v", commandLine, got, err, limited)
		}
	}
}
