package apiserver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/util/cert"

	"github.com/nftproxy/nftproxy/test/lab"
)

// TestStartFails shows that nftproxy prints the cause and the remedy of a
// failed start in one line, and does not change the node. kube-proxy does
// not.
func TestStartFails(t *testing.T) {
	t.Parallel()
	if subjectName() != product {
		return
	}
	w := newWorld(t)
	w.createService("web", "a1 b1")
	hold, err := w.Node1.Listen("tcp", netip.MustParseAddrPort("127.0.0.1:20256"))
	w.must(err)
	defer hold.Close()
	unreadable := w.writeConfig("this is no kubeconfig")
	invalid := w.writeConfig(w.config("nftables: {syncPeriod: -1s}"))
	ipvs := w.writeConfig(strings.Replace(w.config(), "mode: nftables", "mode: ipvs", 1))
	noCA := w.writeConfig(w.kubeconfigWith("certificate-authority: /no/such/ca.crt"))

	for _, tc := range []struct {
		name    string
		wrapper []string // of the program
		flags   []string // in addition to valid ones
		code    int
		want    []string // texts in the line: the cause and the remedy
	}{
		{"unknown flag", nil, []string{"--no-such-flag"}, 2, []string{"no-such-flag", "--help"}},
		{"unknown argument", nil, []string{"serve"}, 2, []string{`"serve"`, "flags only"}},
		{"proxy mode", nil, []string{"--proxy-mode=iptables"}, 2, []string{"--proxy-mode", `"iptables"`, "nftables"}},
		{"invalid flag value", nil, []string{"--cluster-cidr=10.0.0.0"}, 2, []string{"--cluster-cidr", `"10.0.0.0"`}},
		{"no configuration file", nil, []string{"--config=/no/such/file"}, 2,
			[]string{"/no/such/file", "no such file", "--config"}},
		{"invalid field", nil, []string{"--config=" + invalid}, 2, []string{"nftables.syncPeriod", "greater"}},
		{"mode of the file", nil, []string{"--config=" + ipvs}, 2, []string{"mode", `"ipvs"`, "nftables"}},
		{"no kubeconfig", nil, []string{"--kubeconfig=/no/such/file"}, 1,
			[]string{"/no/such/file", "no such file", "--kubeconfig"}},
		{"unreadable kubeconfig", nil, []string{"--kubeconfig=" + unreadable}, 1, []string{unreadable, "--kubeconfig"}},
		{"kubeconfig without its CA", nil, []string{"--kubeconfig=" + noCA}, 1,
			[]string{"/no/such/ca.crt", "--kubeconfig"}},
		{"occupied health port", nil, []string{"--healthz-bind-address=127.0.0.1:20256", "--bind-address-hard-fail"}, 1,
			[]string{"127.0.0.1:20256", "address already in use", "healthzBindAddress"}},
		{"occupied metrics port", nil, []string{"--metrics-bind-address=127.0.0.1:20256", "--bind-address-hard-fail"},
			1,
			[]string{"127.0.0.1:20256", "address already in use", "metricsBindAddress"}},
		{"no CAP_NET_ADMIN", []string{"setpriv", "--bounding-set=-net_admin"}, nil, 1,
			[]string{"operation not permitted", "CAP_NET_ADMIN"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := w.nodeState()
			// A successful start would change the sysctls.
			flags := append([]string{
				"--kubeconfig=" + w.kubeconfig(), "--hostname-override=node1",
				"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=1h",
			}, tc.flags...)
			command := append(append(tc.wrapper, program(product)), flags...)
			stdout, stderr, code := w.runToEnd(command)
			if code != tc.code {
				t.Errorf("got exit code %d, want %d", code, tc.code)
			}
			if stdout != "" {
				t.Errorf("standard output: got %s, want none", stdout)
			}
			line := lastLine(t, stderr)
			for _, want := range tc.want {
				if !strings.Contains(line, want) {
					t.Errorf("got %q, want %q in the line", line, want)
				}
			}
			if after := w.nodeState(); after != before {
				t.Errorf("state of the node: got\n%s\nwant\n%s", after, before)
			}
		})
	}
}

// lastLine returns the last line of standard error. It must be the only line
// that is not a log entry.
func lastLine(t *testing.T, stderr string) string {
	t.Helper()
	entry := regexp.MustCompile(`^[IWEF]\d{4} [\d:.]+ +\d+ \S+:\d+\] `)
	var lines []string
	for line := range strings.Lines(stderr) {
		switch {
		case !entry.MatchString(line):
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		case len(lines) > 0:
			t.Errorf("log entry after %q: %s", lines, line)
		}
	}
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "kube-proxy: ") {
		t.Fatalf("lines that are not log entries: got %q, want one with prefix kube-proxy:", lines)
	}
	return lines[0]
}

// runToEnd runs a program on node1 and waits for its end.
func (w *world) runToEnd(command []string) (stdout, stderr string, code int) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx(), patience)
	defer cancel()
	cmd := w.Node1.Command(ctx, command[0], command[1:]...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if ctx.Err() != nil || err != nil && !errors.As(err, &exit) {
		w.t.Fatalf("%q: %v, %v\n%s", command, err, ctx.Err(), &errs)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// nodeState returns the tables, addresses and sysctls of node1.
func (w *world) nodeState() string {
	w.t.Helper()
	var settings strings.Builder
	w.must(w.Node1.Do(func() error {
		for _, folder := range []string{"ipv4/conf/all", "ipv6/conf/all", "netfilter"} {
			root := filepath.Join("/proc/sys/net", folder)
			err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
				if err != nil || entry.IsDir() || entry.Name() == "nf_conntrack_count" {
					return err
				}
				if value, err := os.ReadFile(path); err == nil { // some are not readable
					fmt.Fprintf(&settings, "%s: %s", path, value)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}))
	return w.tables(w.Node1) + w.run(w.Node1.Namespace, "ip", "-oneline", "address") + settings.String()
}

// kubeconfigWith returns the subject's kubeconfig with another line for the
// CA.
func (w *world) kubeconfigWith(authority string) string {
	w.t.Helper()
	text, err := os.ReadFile(w.kubeconfig())
	w.must(err)
	return regexp.MustCompile(`certificate-authority-data: .*`).ReplaceAllString(string(text), authority)
}

// TestWrongCA shows that the subject logs an unknown CA and retries: the API
// server may get another certificate.
func TestWrongCA(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.createService("web", "a1 b1")
	other, _, err := cert.GenerateSelfSignedCertKey("other", nil, nil)
	w.must(err)
	data := "certificate-authority-data: " + base64.StdEncoding.EncodeToString(other)
	p := w.subject("--kubeconfig="+w.writeConfig(w.kubeconfigWith(data)), "-v=0")
	p.start()
	p.awaitLog("x509: certificate signed by unknown authority")
	p.notHealthy()
	if tables := w.tables(w.Node1); strings.Contains(tables, "dnat") {
		t.Errorf("tables: got\n%s\nwant no endpoints", tables)
	}
}

// TestOccupiedPorts shows that the subject serves while another program
// listens at its ports, and binds them when they are free.
func TestOccupiedPorts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.createService("web", "a1 b1")
	var held []interface{ Close() error }
	for _, address := range []string{"[::]:10256", metricsAddress} {
		listener, err := w.Node1.Listen("tcp", netip.MustParseAddrPort(address))
		w.must(err)
		held = append(held, listener)
	}
	p := w.subject()
	p.start()
	web.servedBy("a1 b1")
	p.awaitLog("address already in use")
	for _, listener := range held {
		w.must(listener.Close())
	}
	p.awaitHealth()
	p.eventually("metrics", func() error {
		_, err := p.get(metricsAddress, "/proxyMode")
		return err
	})
}

// TestFewPrivileges runs the subject with the capability of deploy/ only.
func TestFewPrivileges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := w.createService("web", "a1 b1")
	p := w.subject()
	p.wrapper = []string{"setpriv", "--no-new-privs", "--bounding-set=-all,+net_admin", "--inh-caps=-all"}
	p.startSynced()
	web.servedBy("a1 b1")
	p.movesFlows(web, "a1", "b1")
}

// movesFlows shows that UDP flows move to another endpoint. The subject
// deletes them from connection tracking, which needs privileges.
func (p *proxy) movesFlows(s *service, from, to string) {
	p.t.Helper()
	s.setEndpoints(from)
	s.servedBy(from)
	var flows []*lab.Conn
	for _, d := range s.clusterIPs() {
		if d.Network != "udp" {
			continue
		}
		at := s.w.pods["a2"].Namespace
		conn, result := lab.Open(s.w.ctx(), at, d.Network, d.To, lab.ProbeOptions{Timeout: answerTimeout})
		if conn == nil || result.Answer.Server != from {
			p.t.Fatalf("%v: got %v, want %s", d, result, from)
		}
		defer conn.Close()
		flows = append(flows, conn)
	}
	s.setEndpoints(to)
	for _, flow := range flows {
		p.eventually("UDP flow", func() error {
			ctx, cancel := context.WithTimeout(s.w.ctx(), shortly)
			defer cancel()
			if result := flow.Ask(ctx); result.Outcome != lab.Answered || result.Answer.Server != to {
				return errors.New(result.String())
			}
			return nil
		})
	}
}
