package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
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

	log *labtest.Log  // of all its processes
	cmd *lab.Cmd      // nil while it does not run
	end chan struct{} // closed when the process has ended
	err error         // of the process; valid after end
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
	p := &proxy{t: w.t, at: w.Node1.Namespace, name: name, log: new(labtest.Log)}
	p.flags = append([]string{
		"--proxy-mode=nftables",
		"--conntrack-max-per-core=0", // the limit belongs to the host
		"-v=2",
	}, flags...)
	w.t.Cleanup(func() {
		if p.cmd != nil {
			p.kill()
		}
		if w.t.Failed() {
			w.t.Logf("log of %s %s:\n%s", p.name, strings.Join(p.flags, " "), p.log)
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

// command returns the program to run.
func (p *proxy) command(ctx context.Context) *lab.Cmd {
	line := slices.Concat(p.wrapper, []string{program(p.name)}, p.flags)
	cmd := p.at.Command(ctx, line[0], line[1:]...)
	// By default, clients detect a dead connection after 45 s.
	cmd.Env = append(os.Environ(), "HTTP2_READ_IDLE_TIMEOUT_SECONDS=2", "HTTP2_PING_TIMEOUT_SECONDS=2")
	return cmd
}

// start starts the proxy without waiting for its rules.
func (p *proxy) start() {
	p.t.Helper()
	cmd := p.command(context.Background())
	p.log.Restart()
	cmd.Stdout, cmd.Stderr = p.log, p.log
	started, end := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(end)
		// The kernel kills the process when the thread that created it ends,
		// so the thread waits.
		p.err = p.at.Do(func() error {
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			err := cmd.Cmd.Start()
			started <- err
			if err != nil {
				return err
			}
			return cmd.Wait()
		})
	}()
	if err := <-started; err != nil {
		p.t.Fatal(err)
	}
	p.cmd, p.end = cmd, end
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
		select {
		case <-p.end:
			p.cmd = nil
			p.t.Fatalf("%s ended: %v", p.name, p.err)
		default:
		}
		return look()
	})
}

// awaitLog waits for a text in the log of the running process.
func (p *proxy) awaitLog(text string) {
	p.t.Helper()
	p.eventually("log", func() error {
		if !strings.Contains(p.log.Current(), text) {
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
	p.signal(syscall.SIGTERM)
	<-p.end
	p.cmd = nil
	if p.name == product && p.err != nil {
		p.t.Errorf("%s after SIGTERM: %v", p.name, p.err)
	}
}

// kill ends the proxy with SIGKILL.
func (p *proxy) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	<-p.end
	p.cmd = nil
}

func (p *proxy) signal(signal os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
}

// awaitEnd waits until the proxy exits and returns its exit code.
func (p *proxy) awaitEnd() int {
	p.t.Helper()
	select {
	case <-p.end:
	case <-time.After(patience):
		p.t.Fatalf("%s did not exit after %v", p.name, patience)
	}
	p.cmd = nil
	var exit *exec.ExitError
	if p.err != nil && !errors.As(p.err, &exit) {
		p.t.Fatal(p.err)
	}
	if exit == nil {
		return 0
	}
	return exit.ExitCode()
}

// running reports whether the process runs.
func (p *proxy) running() bool {
	select {
	case <-p.end:
		return false
	default:
		return true
	}
}

// writeConfig writes a configuration file and returns its path.
func (w *world) writeConfig(text string) string {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "config.conf")
	w.must(os.WriteFile(path, []byte(text), 0o644))
	return path
}
