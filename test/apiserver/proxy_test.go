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
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// Time limits of the tests. They are not requirements of the subject.
const (
	// patience limits the wait for an effect. Clients of the API wait up to a
	// minute between two attempts.
	patience = 3 * time.Minute
	// answerTimeout is the timeout of an attempt that must be answered.
	answerTimeout = 10 * time.Second
	// shortly is the timeout of an attempt whose outcome may change, or that
	// must be dropped.
	shortly = 400 * time.Millisecond
)

// eventually calls check until it returns nil.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	labtest.Eventually(t, patience, what, check)
}

// proxy is a proxy program on a node. It can be started several times.
type proxy struct {
	w     *world
	at    *lab.Namespace
	name  string // of the program
	flags []string
	// wrapper is a command that runs the program, for example with fewer
	// privileges.
	wrapper []string

	log     string       // file, of all its processes
	process *lab.Process // nil before the first start
}

// proxy returns a proxy for node1 with the flags of this cluster and these. A
// configuration file replaces the flags of the cluster.
func (w *world) proxy(name string, flags ...string) *proxy {
	p := &proxy{w: w, at: w.Node1.Namespace, name: name, log: filepath.Join(w.t.TempDir(), "log")}
	mode := "nftables"
	if foreign() && name == subjectName() {
		mode, flags = labtest.SubjectMode(), append(flags, labtest.SubjectArgs()...)
	}
	// The limit of conntrack belongs to the host.
	p.flags = []string{"--proxy-mode=" + mode, "--conntrack-max-per-core=0", "-v=2"}
	if !strings.Contains(strings.Join(flags, " "), "--config=") {
		p.flags = append(p.flags, "--kubeconfig="+w.config, "--cluster-cidr="+ranges(), "--hostname-override=node1")
	}
	p.flags = append(p.flags, flags...)
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

// start starts the proxy without waiting for its rules.
func (p *proxy) start() {
	p.w.t.Helper()
	line := slices.Concat(p.wrapper, []string{program(p.name)}, p.flags)
	// By default, clients detect a dead connection after 45 s.
	env := append(os.Environ(), "HTTP2_READ_IDLE_TIMEOUT_SECONDS=2", "HTTP2_PING_TIMEOUT_SECONDS=2")
	var err error
	p.process, err = p.at.StartProcess(context.Background(), lab.ProcessConfig{
		Program: line[0], Args: line[1:], Env: env, Log: p.log,
	})
	p.w.must(err)
}

// startSynced starts the proxy and waits for its first sync.
func (p *proxy) startSynced() {
	p.w.t.Helper()
	p.start()
	p.eventually("health", func() error {
		answer, err := p.get(healthAddress, "/healthz")
		if err == nil && answer.StatusCode != http.StatusOK {
			err = errors.New(answer.Status)
		}
		return err
	})
	if p.name != upstream {
		return
	}
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

// Addresses of a proxy's servers on its node.
const (
	healthAddress  = "127.0.0.1:10256"
	metricsAddress = "127.0.0.1:10249"
)

// eventually is like the function eventually, and ends the test if the proxy
// ends.
func (p *proxy) eventually(what string, look func() error) {
	p.w.t.Helper()
	eventually(p.w.t, p.name+": "+what, func() error {
		p.mustRun()
		return look()
	})
}

// mustRun ends the test if the proxy does not run.
func (p *proxy) mustRun() {
	p.w.t.Helper()
	p.w.must(context.Cause(p.process.Running))
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

// metric returns the sum of a metric over all labels; 0 if the metric is
// absent.
func (p *proxy) metric(name string) (sum float64, err error) {
	answer, err := p.get(metricsAddress, "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(answer.body) {
		if !strings.HasPrefix(line, name+" ") && !strings.HasPrefix(line, name+"{") {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", line, err)
		}
		sum += value
	}
	return sum, nil
}

// notHealthy returns an error unless a proxy runs before its first sync, and
// its health server, if it answers, has another status than 200 at /healthz and
// 200 at /livez. kube-proxy's /healthz is 200 from the start.
func (p *proxy) notHealthy() error {
	if answer, err := p.get(healthAddress, "/livez"); err == nil && answer.StatusCode != http.StatusOK {
		return fmt.Errorf("/livez before the first sync: got %s, want 200: %s", answer.Status, answer.body)
	}
	if answer, err := p.get(healthAddress, "/healthz"); p.name != upstream && err == nil &&
		answer.StatusCode == http.StatusOK {
		return fmt.Errorf("/healthz before the first sync: got 200, want 503: %s", answer.body)
	}
	return context.Cause(p.process.Running)
}

// terminate ends the proxy with SIGTERM, which kube-proxy does not handle.
func (p *proxy) terminate() {
	p.w.t.Helper()
	p.process.End(syscall.SIGTERM)
	if code := p.awaitEnd(); p.name == product && code != 0 {
		p.w.must(fmt.Errorf("%s after SIGTERM: exit code %d", p.name, code))
	}
}

// kill ends the proxy with SIGKILL.
func (p *proxy) kill() { p.process.End(syscall.SIGKILL) }

// awaitEnd waits until the proxy exits and returns its exit code.
func (p *proxy) awaitEnd() int {
	p.w.t.Helper()
	select {
	case <-p.process.Running.Done():
	case <-time.After(patience):
		p.w.must(fmt.Errorf("%s did not exit after %v", p.name, patience))
	}
	return p.process.Wait()
}

// errors returns the errors in the log of the running process, with their
// indented lines.
func (p *proxy) errors() string {
	return strings.Join(regexp.MustCompile(`(?m)^E\d{4} .*\n([\t ].*\n)*`).FindAllString(p.process.Log(), -1), "")
}

// startProxies starts a proxy on each node, and returns the proxy of node1.
func (w *world) startProxies(flags ...string) *proxy {
	w.t.Helper()
	var all []*proxy
	for _, node := range w.Nodes() {
		p := w.proxy(subjectName(), append(flags, "--hostname-override="+node.Name)...)
		p.at = node.Namespace
		p.startSynced()
		all = append(all, p)
	}
	return all[0]
}
