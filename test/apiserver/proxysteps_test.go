package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/test/lab"
)

// proxySteps start and end proxies, and ask them. The step that starts a proxy
// names it: proxy is the subject; other is kube-proxy, or the program of the
// environment variable OTHER; iptables-nft and iptables-legacy are kube-proxy
// in iptables mode with a variant of iptables; init and container are those of
// the DaemonSet.
func (s *story) proxySteps() map[string]any {
	return map[string]any{
		"wrap":      func(command []string) { s.wrapper = command },
		"iptables":  func(variant string) { s.wrapper = s.iptablesPath(variant) },
		"launch":    func(args []string) { s.newProxy(args).start() },
		"start":     func(args []string) { s.newProxy(args).startSynced() },
		"restart":   func(name string) { s.proxies[name].kill(); s.proxies[name].startSynced() },
		"crash":     func(name string) { s.proxies[name].kill() },
		"terminate": func(name string) { s.proxies[name].terminate() },
		"exit":      func(name string) int { return s.proxies[name].awaitEnd() },
		"cleanup":   func(name string) error { return s.proxies[name].cleanUp() },
		"refuse":    s.refusedStart,
		"log": func(text string) {
			p := s.proxies["proxy"]
			eventually(s.t, "log", func() error {
				if !strings.Contains(p.process.Log(), text) {
					return fmt.Errorf("got no %q", text)
				}
				return nil
			})
		},
		"errors":    func(name string) (string, error) { return s.errors(s.proxies[name]) },
		"unhealthy": func() error { return s.proxies["proxy"].notHealthy() },
		"runs":      func() { s.proxies["proxy"].mustRun() },
		"get": func(args []string) (string, error) {
			p := s.proxies["proxy"]
			p.mustRun()
			at := healthAddress
			if len(args) > 1 {
				at = metricsAddress
			}
			answer, err := p.get(at, args[0])
			if err != nil {
				return "", err
			}
			return fmt.Sprintln(answer.StatusCode), nil
		},
		"metric": func(args []string) (string, error) {
			p := s.proxies[cmp.Or(strings.Join(args[1:], " "), "proxy")]
			p.mustRun()
			value, err := p.metric(args[0])
			return fmt.Sprintln(value), err
		},
		"between": func(least, most float64, name string) {
			s.proxies["proxy"].eventually(name, func() error {
				value, err := s.proxies["proxy"].metric(name)
				if err == nil && (value < least || value > most) {
					err = fmt.Errorf("got %g", value)
				}
				return err
			})
		},
		"expand": func(args []string) {
			s.must(os.WriteFile(s.script.MkAbs(args[1]), []byte(s.expanded(args[0])), 0o644))
		},
		"volume":  func(file, to string) { s.writeVolume(s.script.MkAbs(to), s.expanded(file)) },
		"hold":    s.hold,
		"release": s.release,
	}
}

// errors returns the errors in the log of a proxy, and its metrics of failed
// transactions unless they are 0.
func (s *story) errors(p *proxy) (string, error) {
	text := p.errors()
	for _, name := range []string{"sync", "cleanup"} {
		name = "kubeproxy_sync_proxy_rules_nftables_" + name + "_failures_total"
		value, err := p.metric(name)
		if err != nil {
			return "", err
		}
		if value != 0 {
			text += fmt.Sprintln(name, value)
		}
	}
	return text, nil
}

// newProxy returns the proxy of a step.
func (s *story) newProxy(args []string) *proxy {
	name, flags := args[0], args[1:]
	var p *proxy
	switch name {
	case "proxy":
		p = s.proxy(subjectName(), flags...)
	case "other":
		p = s.proxy(cmp.Or(os.Getenv("OTHER"), upstream), flags...)
	case "init", "container":
		p = s.container(name)
	default:
		p = s.proxy(upstream, append(flags, "--proxy-mode=iptables")...)
		p.wrapper = s.iptablesPath(strings.TrimPrefix(name, "iptables-"))
	}
	if s.wrapper != nil && p.wrapper == nil {
		p.wrapper = s.wrapper
	}
	s.proxies[name], s.began = p, time.Now()
	return p
}

// iptablesPath returns a command that runs a program with a variant of
// iptables: kube-proxy runs the first iptables in PATH.
func (s *story) iptablesPath(variant string) []string {
	folder := s.t.TempDir()
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, part := range []string{"", "-save", "-restore"} {
			path, err := exec.LookPath(family + "-" + variant + part)
			s.must(err)
			s.must(os.Symlink(path, filepath.Join(folder, family+part)))
		}
	}
	return []string{"env", "PATH=" + folder + ":" + os.Getenv("PATH")}
}

// cleanUp runs the program with --cleanup.
func (p *proxy) cleanUp() error {
	cleanup := *p
	cleanup.flags = []string{"--cleanup"}
	cleanup.start()
	if code := cleanup.awaitEnd(); code != 0 {
		return fmt.Errorf("--cleanup: exit code %d:\n%s", code, cleanup.process.Log())
	}
	return nil
}

// refusedStart starts the product with flags that it must refuse with an exit
// code. It returns the last line of standard error, which must be the only one
// that is not a log entry. The node must not change.
func (s *story) refusedStart(code string, flags []string) (string, error) {
	before := s.nodeState()
	// A successful start would change the sysctls.
	command := slices.Concat(s.wrapper, []string{program(product), "--kubeconfig=" + s.config,
		"--hostname-override=node1", "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=1h"}, flags)
	ctx, cancel := context.WithTimeout(s.ctx(), patience)
	defer cancel()
	cmd := s.Node1.Command(ctx, command[0], command[1:]...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if got := fmt.Sprint(cmd.ProcessState.ExitCode()); got != code || out.Len() > 0 {
		return "", fmt.Errorf("got %w, want exit code %s and no output:\n%s\n%s", err, code, &out, &errs)
	}
	if after := s.nodeState(); after != before {
		return "", fmt.Errorf("state of the node: got\n%s\nwant\n%s", after, before)
	}
	entries := regexp.MustCompile(`(?m)^[IWEF]\d{4} [\d:.]+ +\d+ \S+:\d+\] .*\n`)
	line, ok := strings.CutPrefix(entries.ReplaceAllString(errs.String(), ""), "kube-proxy: ")
	if !ok || strings.Count(line, "\n") != 1 || !strings.HasSuffix(errs.String(), line) {
		return "", fmt.Errorf("got\n%s\nwant one line after the log, with prefix kube-proxy:", &errs)
	}
	return line, nil
}

// writeVolume writes a file behind two symbolic links, or changes it, as the
// kubelet does with a ConfigMap: the first link leads to a new folder.
func (s *story) writeVolume(path, text string) {
	volume, name := filepath.Split(path)
	s.must(os.MkdirAll(volume, 0o755))
	if _, err := os.Lstat(path); err != nil {
		s.must(os.Symlink("..data/"+name, path))
	}
	folder, err := os.MkdirTemp(volume, "..")
	s.must(err)
	s.must(os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
	link := filepath.Join(volume, "..data")
	s.must(os.Symlink(filepath.Base(folder), link+"_tmp"))
	s.must(os.Rename(link+"_tmp", link))
}

// hold listens at addresses of node1 until the step release.
func (s *story) hold(addresses []string) {
	for _, address := range addresses {
		listener, err := s.Node1.Listen("tcp", netip.MustParseAddrPort(address))
		s.must(err)
		s.held = append(s.held, listener)
		s.t.Cleanup(func() { listener.Close() })
	}
}

func (s *story) release() {
	for _, listener := range s.held {
		s.must(listener.Close())
	}
	s.held = nil
}

// movesFlows returns an error unless UDP flows move from a pod to another one.
// The subject deletes them from connection tracking, which needs privileges.
func (s *story) movesFlows(service, from, to string) error {
	s.setEndpoints(service, service, []string{from}, time.Time{})
	s.reaches(from, s.routes(service)...)
	var flows []*lab.Conn
	for _, d := range s.frontends(service, "clusterIP") {
		if d.Network != "udp" {
			continue
		}
		conn, result := lab.Open(s.ctx(), s.at("a2"), d.Network, d.To, lab.ProbeOptions{Timeout: answerTimeout})
		if conn == nil || result.Answer.Server != from {
			return fmt.Errorf("%v: got %v, want %s", d, result, from)
		}
		defer conn.Close()
		flows = append(flows, conn)
	}
	s.setEndpoints(service, service, []string{to}, time.Time{})
	for _, flow := range flows {
		eventually(s.t, "UDP flow", func() error {
			ctx, cancel := context.WithTimeout(s.ctx(), shortly)
			defer cancel()
			if result := flow.Ask(ctx); result.Outcome != lab.Answered || result.Answer.Server != to {
				return errors.New(result.String())
			}
			return nil
		})
	}
	return nil
}
