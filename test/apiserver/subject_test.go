package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// proxy is a proxy program on a node. It can be started several times.
type proxy struct {
	t     testing.TB
	at    *lab.Namespace
	name  string // of the program
	flags []string
	// wrapper is a command that runs the program, for example with fewer
	// privileges.
	wrapper []string

	log     string       // file, of all its processes
	process *lab.Process // nil before the first start
}

// subject returns the proxy under test for node1. It does not run yet.
func (w *world) subject(flags ...string) *proxy { return w.proxy(subjectName(), flags...) }

// proxy returns a proxy for node1 with the flags of this cluster and these.
func (w *world) proxy(name string, flags ...string) *proxy {
	w.t.Helper()
	return w.bareProxy(name, append([]string{
		"--kubeconfig=" + w.kubeconfig(),
		"--hostname-override=" + w.Node1.Name,
		"--cluster-cidr=" + ranges(),
	}, flags...)...)
}

// bareProxy returns a proxy for node1 with these flags, and those that a
// proxy in a network namespace needs.
func (w *world) bareProxy(name string, flags ...string) *proxy {
	p := &proxy{t: w.t, at: w.Node1.Namespace, name: name, log: filepath.Join(w.t.TempDir(), "log")}
	mode := "nftables"
	if foreign() && name == subjectName() {
		mode, flags = labtest.SubjectMode(), append(flags, labtest.SubjectArgs()...)
	}
	p.flags = append([]string{
		"--proxy-mode=" + mode,
		"--conntrack-max-per-core=0", // the limit belongs to the host
		"-v=2",
	}, flags...)
	w.t.Cleanup(func() {
		if p.process != nil {
			p.kill()
		}
		if w.t.Failed() {
			log, err := os.ReadFile(p.log)
			w.t.Logf("log of %s %s (%v):\n%s", p.name, strings.Join(p.flags, " "), err, log)
		}
	})
	return p
}

func ranges() string {
	var out []string
	for _, prefix := range lab.PodRanges() {
		out = append(out, prefix.String())
	}
	return strings.Join(out, ",")
}

// start starts the proxy without waiting for its rules.
func (p *proxy) start() {
	p.t.Helper()
	line := slices.Concat(p.wrapper, []string{program(p.name)}, p.flags)
	// By default, clients detect a dead connection after 45 s.
	env := append(os.Environ(), "HTTP2_READ_IDLE_TIMEOUT_SECONDS=2", "HTTP2_PING_TIMEOUT_SECONDS=2")
	var err error
	p.process, err = p.at.StartProcess(context.Background(), lab.ProcessConfig{
		Program: line[0], Args: line[1:], Env: env, Log: p.log,
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

// startSynced starts the proxy and waits for its first sync.
func (p *proxy) startSynced() {
	p.t.Helper()
	p.start()
	p.awaitHealth()
	if p.name == upstream {
		// It is healthy before its first sync.
		written := regexp.MustCompile(
			`(?m)^kubeproxy_sync_proxy_rules_last_timestamp_seconds\{ip_family="IPv[46]"\} [1-9]`)
		p.eventually("first sync", func() error {
			answer, err := p.get(metricsAddress, "/metrics")
			if err == nil && len(written.FindAllString(answer.body, -1)) < 2 {
				err = errors.New("not in both families")
			}
			return err
		})
	}
}

// Addresses of a proxy's servers on its node.
const (
	healthAddress  = "127.0.0.1:10256"
	metricsAddress = "127.0.0.1:10249"
)

func (p *proxy) awaitHealth() {
	p.t.Helper()
	p.eventually("health", func() error {
		answer, err := p.get(healthAddress, "/healthz")
		if err == nil && answer.StatusCode != http.StatusOK {
			err = errors.New(answer.Status)
		}
		return err
	})
}

// eventually is like the function eventually, and ends the test if the proxy
// ends.
func (p *proxy) eventually(what string, look func() error) {
	p.t.Helper()
	eventually(p.t, p.name+": "+what, func() error {
		if !p.running() {
			p.t.Fatalf("%s: %v", p.name, context.Cause(p.process.Running))
		}
		return look()
	})
}

// awaitLog waits for a text in the log of the running process.
func (p *proxy) awaitLog(text string) {
	p.t.Helper()
	p.eventually("log", func() error {
		if !strings.Contains(p.process.Log(), text) {
			return fmt.Errorf("got no %q", text)
		}
		return nil
	})
}

// answer is the answer of a server of the proxy.
type answer struct {
	*http.Response
	body string
}

// get sends a request to a server of the proxy.
func (p *proxy) get(address, path string) (answer, error) {
	response, body, err := p.at.Get(context.Background(), "http://"+address+path, answerTimeout)
	return answer{response, string(body)}, err
}

// terminate ends the proxy with SIGTERM, which kube-proxy does not handle.
func (p *proxy) terminate() {
	p.t.Helper()
	p.process.End(syscall.SIGTERM)
	if code := p.awaitEnd(); p.name == product && code != 0 {
		p.t.Errorf("%s after SIGTERM: exit code %d", p.name, code)
	}
}

// kill ends the proxy with SIGKILL.
func (p *proxy) kill() { p.process.End(syscall.SIGKILL) }

// awaitEnd waits until the proxy exits and returns its exit code.
func (p *proxy) awaitEnd() int {
	p.t.Helper()
	select {
	case <-p.process.Running.Done():
	case <-time.After(patience):
		p.t.Fatalf("%s did not exit after %v", p.name, patience)
	}
	return p.process.Wait()
}

// running reports whether the process runs.
func (p *proxy) running() bool { return p.process.Running.Err() == nil }

// writeConfig writes a configuration file and returns its path.
func (w *world) writeConfig(text string) string {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "config.conf")
	w.must(os.WriteFile(path, []byte(text), 0o644))
	return path
}
