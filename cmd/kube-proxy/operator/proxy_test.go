package operator_test

import (
	"context"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/socket"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/manifest"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/proxier/table/keep"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// listen makes a proxy answer in the network namespace of the test until the
// test ends.
func listen(t *testing.T, pages ...socket.Page) {
	t.Helper()
	pages = append(pages, ready.AnsweredBy(func(context.Context, string, func(*string) error) error { return nil }))
	server, err := socket.NewServer(pages)
	must.NoError(t, err)
	background(t, server.Run)
	for range 1000 {
		err = nil
		for _, err = range ready.Ask(t.Context(), &socket.Client{}, "") {
		}
		if err == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the proxy does not listen")
}

// ready is a question without an answer.
var ready = socket.Question[string, string]{
	Path: "/ready", Format: func(string) url.Values { return nil },
	Parse: func(url.Values) (string, error) { return "", nil },
}

// background runs f until the test ends.
func background(t *testing.T, f func(context.Context)) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-done
	})
}

// No control character of an answer or an error reaches the terminal.
func TestControlCharacters(t *testing.T) {
	tabletest.NewNode(t)
	const hostile = "\x1b]0;x\a\r\u009b31m\u202e"
	status := answer.ProxyStatus{Status: proxier.Status{Node: hostile, Families: []proxier.FamilyStatus{{
		LastSync: &proxier.SyncStatus{Error: hostile},
		Stats:    table.Stats{Repairs: map[keep.DamageKind]int{hostile: 1}},
	}}}}
	listen(t, answer.Status.AnsweredBy(answered[struct{}](&status, nil)))
	for _, commandLine := range []string{
		"status", "status -o wide", "status -o json", "status -o yaml", hostile, "status --socket /" + hostile,
	} {
		got := run(strings.Fields(commandLine)...)
		for _, r := range got {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("%s: got %q, want no character %q", commandLine, got, r)
				break
			}
		}
	}
}

// A check of doctor that fails is a reason for the state, and not repeated.
func TestStatusListsChecksOnce(t *testing.T) {
	tabletest.NewNode(t)
	status := answer.ProxyStatus{Manifests: &manifest.Status{ProblemCount: 1}}
	listen(t, answer.Status.AnsweredBy(answered[struct{}](&status, nil)))
	if got := runRaw("status"); strings.Count(got, " manifests: ") != 1 {
		t.Errorf("got\n%s, want the failed check manifests once", got)
	}
}

// A proxy that accepts connections but does not answer costs the timeout.
func TestStatusOfHungProxy(t *testing.T) {
	tabletest.NewNode(t)
	t.Chdir(t.TempDir())
	l, err := net.Listen("unix", "hung.sock")
	must.NoError(t, err)
	defer l.Close()
	const want = "did not answer in time"
	for command, code := range map[string]string{"services": "1", "status": "2"} {
		got := run(command, "--socket", "hung.sock", "--timeout", "10ms")
		if !strings.Contains(got, want) || !strings.HasSuffix(got, "exit code "+code+"\n") {
			t.Errorf("got %s, want %q and exit code %s", got, want, code)
		}
	}
}

// The sections of testdata/services.txtar are commands on a node with a proxy
// that serves the manifests of testdata/cluster.
func TestServices(t *testing.T) {
	tabletest.NewNode(t)
	serveManifests(t, "node1", "testdata/cluster", tabletest.Rules())
	compare(t, "testdata/services.txtar")
}

// serveManifests runs a proxy of a node that serves the manifests of a
// directory until the test ends.
func serveManifests(t *testing.T, node, dir string, rules ruleset.Config) {
	t.Helper()
	p, err := proxier.NewDualStackProxier(proxier.Config{
		NodeName: node, ExplicitSync: true,
		Rules: ruleset.Config{DetectLocal: rules.DetectLocal, NodePortAddresses: rules.NodePortAddresses},
	})
	must.NoError(t, err)
	t.Cleanup(func() { p.Close() })
	source, err := manifest.New(manifest.Config{Dir: dir, Handler: p})
	must.NoError(t, err)
	background(t, p.SyncLoop)
	background(t, func(ctx context.Context) { source.Run(ctx) })
	<-p.Synced()
	answers, err := answer.New(answer.Config{
		Proxy: p, Version: "v1.2.3", NodeEligible: func() bool { return true }, Manifests: source.Status,
	})
	must.NoError(t, err)
	t.Cleanup(answers.Close)
	listen(t, answers.Pages()...)
}
