package neighbours

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/doctor"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/frontend"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/lab/listing"
	"github.com/nftproxy/nftproxy/test/must"
)

// node is a node with the proxy, a Debian system, and Services with one
// endpoint each: in a pod of the node, and in one of another node.
type node struct {
	*debian
	t      *testing.T
	lab    *lab.Lab
	client *lab.Pod
	dir    string // manifests
	log    string // file of the proxy
	proxy  *lab.Process
	tables []string // lines of the proxy's tables after its first start

	// probes are the attempts that must succeed.
	probes []probe

	// listing returns the output of nft list ruleset.
	listing func() (string, error)
}

// probe is an attempt to reach a Service.
type probe struct {
	name string
	from *lab.Namespace
	to   frontend.Frontend
}

const targetPort = 8080

// newNode creates a node whose proxy does not run yet.
func newNode(t *testing.T, release string) *node {
	t.Helper()
	l := labtest.New(t)
	n := &node{t: t, lab: l, dir: t.TempDir(), log: filepath.Join(t.TempDir(), "log")}
	n.debian = newDebian(t, l.Node1.Namespace, release)
	n.listing = func() (string, error) {
		out, err := n.at.Command(t.Context(), "nft", "list", "ruleset").Output()
		return string(out), err
	}
	n.client = labtest.AddPod(t, l.Node1, "pod")
	local, remote := labtest.AddPod(t, l.Node1, "local"), labtest.AddPod(t, l.Node2, "remote")
	for _, ns := range []*lab.Namespace{local.Namespace, remote.Namespace} {
		labtest.Serve(t, targetPort, ns)
	}
	n.serve("local", 10, local.Addrs()...)
	n.serve("remote", 20, remote.Addrs()...)
	t.Cleanup(func() {
		if t.Failed() {
			log, err := os.ReadFile(n.log)
			t.Logf("log of kube-proxy (%v):\n%s", err, log)
			labtest.LogTables(t, l.Node1)
		}
	})
	return n
}

// serve writes the manifests of a Service with a number, and adds its probes.
func (n *node) serve(name string, number int, endpoints ...netip.Addr) {
	n.t.Helper()
	text := fmt.Appendf(nil, `{apiVersion: v1, kind: Service, metadata: {name: %[1]s}, spec: {
		type: NodePort, clusterIP: 10.96.0.%[2]d, clusterIPs: [10.96.0.%[2]d, "fd00:96::%[2]x"],
		ipFamilies: [IPv4, IPv6], ipFamilyPolicy: RequireDualStack, ports: [
		{name: tcp, protocol: TCP, port: 80, targetPort: %[3]d, nodePort: 300%[2]d},
		{name: udp, protocol: UDP, port: 80, targetPort: %[3]d, nodePort: 300%[2]d}]}}
`, name, number, targetPort)
	var service corev1.Service
	must.NoError(n.t, yaml.UnmarshalStrict(text, &service))
	var nodes []netip.Addr
	for i, addr := range endpoints {
		text = fmt.Appendf(text, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-%[2]d, labels: {kubernetes.io/service-name: %[1]s}}
addressType: %[3]s
endpoints: [{addresses: ["%[4]s"]}]
ports: [{name: tcp, protocol: TCP, port: %[5]d}, {name: udp, protocol: UDP, port: %[5]d}]
`, name, i, map[bool]string{true: "IPv4", false: "IPv6"}[addr.Is4()], addr, targetPort)
		nodes = append(nodes, n.at.AddrLike(addr))
	}
	must.NoError(n.t, os.WriteFile(filepath.Join(n.dir, name+".yaml"), text, 0o644))
	for _, to := range frontend.Of(&service, nodes...) {
		if !slices.Contains(nodes, n.at.AddrLike(to.To.Addr())) {
			continue // no endpoint of this family
		}
		clients := []*lab.Namespace{n.client.Namespace, n.at, n.lab.Client}
		if to.Kind == frontend.NodePort {
			clients = clients[2:]
		}
		for _, from := range clients {
			what := fmt.Sprintf("%s → %s of %s (%v)", from.Name, to.Kind, name, to)
			n.probes = append(n.probes, probe{what, from, to})
		}
	}
}

// program returns the test program as one of the two commands, in the node.
func (n *node) program(name string, args ...string) *lab.Cmd {
	path, err := os.Executable()
	must.NoError(n.t, err)
	cmd := n.at.Command(context.Background(), path, args...)
	cmd.Env = programEnv(name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// programEnv returns the environment in which the test program is a command.
func programEnv(name string) []string { return append(os.Environ(), asProgram+"="+name) }

// start starts the proxy, waits for its rules, and checks that other rules are
// unchanged.
func (n *node) start() {
	n.t.Helper()
	n.unchanged("the start of the proxy", func() {
		var cidrs []string
		for _, p := range lab.PodRanges() {
			cidrs = append(cidrs, p.String())
		}
		program, err := os.Executable()
		if err == nil {
			n.proxy, err = n.at.StartProcess(context.Background(), lab.ProcessConfig{
				Program: program, Env: programEnv("kube-proxy"), Log: n.log, Args: []string{
					"--manifests", n.dir, "--hostname-override", "node1", "--cluster-cidr", strings.Join(cidrs, ","),
					"--oom-score-adj", "0",
				},
			})
		}
		must.NoError(n.t, err)
		n.t.Cleanup(func() { n.proxy.End(syscall.SIGKILL) })
		labtest.Eventually(n.t, 20*time.Second, "rules of the proxy", func() error {
			if strings.Count(n.proxy.Log(), "Rules are in place") < 2 { // families
				return errors.New("not in place")
			}
			return nil
		})
	})
	n.tables = n.ownTables()
}

// stop ends the proxy. Its rules stay.
func (n *node) stop() {
	n.t.Helper()
	n.unchanged("the end of the proxy", func() {
		n.proxy.End(syscall.SIGTERM)
		if code := n.proxy.Wait(); code != 0 {
			n.t.Errorf("kube-proxy ended with exit code %d", code)
		}
	})
}

// cleanUp runs --cleanup.
func (n *node) cleanUp() {
	n.t.Helper()
	n.unchanged("--cleanup", func() {
		if out, err := n.program("kube-proxy", "--cleanup").CombinedOutput(); err != nil {
			n.t.Errorf("--cleanup: %v\n%s", err, out)
		}
	})
	if out := n.ruleset(true); out != "" {
		n.t.Errorf("--cleanup left\n%s", out)
	}
}

// unchanged checks that an action keeps the rules of other programs.
func (n *node) unchanged(what string, action func()) {
	n.t.Helper()
	before := n.otherRules()
	action()
	if after := n.otherRules(); after != before {
		n.t.Errorf("%s changed the rules of another program: got\n%s\nwant\n%s", what, after, before)
	}
}

// counts are the values of counters in listings.
var counts = regexp.MustCompile(`packets \d+ bytes \d+|\[\d+:\d+\]|(?m)^# (Generated|Completed).*$`)

// otherRules returns all rules of other programs, in nf_tables and in legacy
// tables.
func (n *node) otherRules() string {
	n.t.Helper()
	rules := n.ruleset(false)
	for _, program := range []string{"iptables-legacy-save", "ip6tables-legacy-save"} {
		rules += labtest.Run(n.t, n.at, program)
	}
	return counts.ReplaceAllString(rules, "")
}

// ruleset returns the tables kube-proxy, or all others, as nft lists them.
func (n *node) ruleset(own bool) string {
	n.t.Helper()
	listing, err := n.listing()
	must.NoError(n.t, err)
	var out strings.Builder
	for table := range strings.SplitAfterSeq(listing, "\n}\n") {
		if strings.Contains(table, " kube-proxy {\n") == own {
			out.WriteString(table)
		}
	}
	return out.String()
}

// ownTables returns the lines of the proxy's tables.
func (n *node) ownTables() []string { return sortedLines(n.ruleset(true)) }

// sortedLines returns a listing without the values of counters. The order of
// elements is as in a hash table.
func sortedLines(listing string) []string {
	lines := strings.FieldsFunc(counts.ReplaceAllString(listing, ""), func(r rune) bool {
		return r == '\n' || r == ','
	})
	for i, line := range lines {
		line = strings.TrimPrefix(strings.TrimSpace(line), "elements = {")
		lines[i] = strings.TrimSpace(strings.TrimSuffix(line, "}"))
	}
	slices.Sort(lines)
	// The last reserved id of session affinity grows with each start.
	return slices.DeleteFunc(lines, func(line string) bool { return line == "" || reservedID.MatchString(line) })
}

// reservedID matches the element of the set reserved-ids.
var reservedID = regexp.MustCompile(`^[0-9a-f]+:[0-9a-f]+$`)

// failing makes all attempts and returns those that fail.
func (n *node) failing(timeout time.Duration) []string {
	var mu sync.Mutex
	var all sync.WaitGroup
	var failed []string
	for _, p := range n.probes {
		all.Go(func() {
			r := p.to.Probe(context.Background(), p.from, lab.ProbeOptions{Timeout: timeout})
			if r.Outcome != lab.Answered {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, fmt.Sprintf("%s: %v", p.name, r))
			}
		})
	}
	all.Wait()
	slices.Sort(failed)
	return failed
}

// diagnose returns the finding of a check of nftproxy doctor.
func (n *node) diagnose(check string) doctor.Finding {
	n.t.Helper()
	out, err := n.program("nftproxy", "doctor", "-o", "json").Output()
	var report doctor.Report
	if decode := json.Unmarshal(out, &report); decode != nil {
		n.t.Fatalf("doctor: %v: %v\n%s", err, decode, out)
	}
	if (err != nil) != report.Bad() {
		n.t.Errorf("doctor: got %v, want an error if a check warns or fails: %s", err, out)
	}
	for _, f := range report.Findings {
		if f.Check == check {
			return f
		}
	}
	n.t.Fatalf("got no finding of %s", check)
	return doctor.Finding{}
}

const patience = 20 * time.Second

// works checks that Services work, that doctor finds no rule that blocks them,
// and that the proxy's tables are complete.
func (n *node) works(situation string) {
	n.t.Helper()
	labtest.Eventually(n.t, patience, situation, func() error {
		if failed := n.failing(2 * time.Second); len(failed) > 0 {
			return fmt.Errorf("%d of %d attempts failed:\n%s", len(failed), len(n.probes), strings.Join(failed, "\n"))
		}
		return nil
	})
	if f := n.diagnose("filters"); f.Result != doctor.OK {
		n.t.Errorf("%s: doctor: got %s: %s %v, want ok", situation, f.Result, f.Reason, f.Details)
	}
	labtest.Eventually(n.t, patience, situation, func() error {
		now := n.ownTables()
		if n.tables == nil { // Services were added
			n.tables = now
		}
		if d := listing.Difference(n.tables, now); d != "" {
			return fmt.Errorf("the tables of the proxy changed: %s", d)
		}
		return nil
	})
}

// blocked checks that Services fail, and that doctor names the rule.
func (n *node) blocked(situation, rule string) {
	n.t.Helper()
	if failed := n.failing(time.Second); len(failed) == 0 {
		n.t.Errorf("%s: all attempts succeeded, want some to fail", situation)
	}
	f := n.diagnose("filters")
	if f.Result != doctor.Fail || !strings.Contains(strings.Join(f.Details, "\n"), rule) {
		n.t.Errorf("%s: doctor: got %s: %s %q, want fail with %q", situation, f.Result, f.Reason, f.Details, rule)
	}
	if d := listing.Difference(n.tables, n.ownTables()); d != "" {
		n.t.Errorf("%s: the tables of the proxy changed: %s", situation, d)
	}
}
