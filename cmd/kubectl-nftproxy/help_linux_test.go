package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator"
)

// The help has every verb of nftproxy that is of use in a pod.
func TestHelp(t *testing.T) {
	var out bytes.Buffer
	operator.Main(operator.Config{Stdout: &out, Stderr: new(bytes.Buffer)}, []string{"__complete", ""})
	verbs := 0
	for line := range strings.Lines(out.String()) {
		verb, _, ok := strings.Cut(line, "\t")
		if !ok || slices.Contains([]string{"check", "completion", "docs", "help"}, verb) {
			continue
		}
		verbs++
		if !strings.Contains(help(), "\n  "+verb+" ") {
			t.Errorf("the help has no verb %s", verb)
		}
	}
	if verbs == 0 {
		t.Errorf("got no verbs from %q", &out)
	}
}
