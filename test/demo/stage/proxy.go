package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
)

// proxy is kube-proxy, running on a node.
type proxy struct {
	node  string
	log   string // file
	cmd   *lab.Cmd
	ended chan struct{}
	err   error // how it ended
}

// stopTimeout is how long kube-proxy may take to end by itself.
const stopTimeout = 3 * time.Second

// ProxyArgs are the arguments that kube-proxy gets on a node.
func (s *Stage) ProxyArgs(node string) []string {
	var pods []string
	for _, r := range lab.PodRanges() {
		pods = append(pods, r.String())
	}
	return []string{
		"--manifests", s.ManifestFolder(), "--hostname-override", node, "--cluster-cidr", strings.Join(pods, ","),
	}
}

// LogFile is where kube-proxy of a node writes its log.
func (s *Stage) LogFile(node string) string { return filepath.Join(s.Folder(), node+".log") }

// StartProxy starts kube-proxy on a node where none runs.
func (s *Stage) StartProxy(ctx context.Context, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	node, err := s.node(name)
	if err != nil {
		return err
	}
	log, err := os.OpenFile(s.LogFile(name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	p := &proxy{node: name, log: s.LogFile(name), ended: make(chan struct{})}
	// Not the caller's context: it is stop that ends the process, in order.
	p.cmd = node.Command(context.Background(), s.config.KubeProxy, s.ProxyArgs(name)...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = attributes()
	if err := startAndWait(node.Do, p.cmd.Cmd, &p.err, p.ended); err != nil {
		return fmt.Errorf("start kube-proxy on %s: %w", name, err)
	}
	s.proxies[name] = p
	return nil
}

// KillProxy kills kube-proxy on a node: it gets no chance to do anything about it.
func (s *Stage) KillProxy(node string) error {
	p := s.proxies[node]
	if err := p.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill kube-proxy on %s: %w", node, err)
	}
	<-p.ended
	delete(s.proxies, node)
	return nil
}

// PID is the process id of kube-proxy on a node.
func (s *Stage) PID(node string) int { return s.proxies[node].cmd.Process.Pid }

// stop ends the process. It is no error that it has ended already.
func (p *proxy) stop() error {
	err := p.cmd.Process.Signal(syscall.SIGTERM)
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end kube-proxy on %s: %w", p.node, err)
	}
	select {
	case <-p.ended:
		return nil
	case <-time.After(stopTimeout):
	}
	p.cmd.Process.Kill()
	<-p.ended
	return fmt.Errorf("kube-proxy on %s did not end within %v of SIGTERM", p.node, stopTimeout)
}

// Failure tells that a kube-proxy has ended by itself, with the last lines of its log; nil if all run.
func (s *Stage) Failure() error {
	for _, p := range s.proxies {
		select {
		case <-p.ended:
			return fmt.Errorf("kube-proxy on %s ended by itself (%v); its last words:\n%s", p.node, p.err, lastLines(p.log))
		default:
		}
	}
	return nil
}

// lastLines returns the end of a file.
func lastLines(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	const count = 10
	return string(bytes.Join(lines[max(0, len(lines)-count):], []byte("\n")))
}
