package apiserver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	object "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/cert"

	"github.com/nftproxy/nftproxy/test/cluster"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/script"
)

// TestScripts runs the scripts of testdata/scripts. The package comment lists
// their steps.
func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{
		Patience: patience,
		Condition: func(name string) (bool, error) {
			return name == subjectName() || name == "foreign" && foreign(), nil
		},
		Setup: func(e *script.Env) (map[string]script.Command, error) { return newStory(e.T).commands(), nil },
	})
}

// story is what a script has: its world, and the programs that it started.
type story struct {
	*world
	t       testing.TB
	wrapper []string          // of the programs that start next
	proxies map[string]*proxy // by the name that steps use
	// began is when a proxy or the API server was last started.
	began  time.Time
	stream *stream
	// monitor is `nft monitor`, of whose output the script has read seen bytes.
	monitor  *lab.Process
	seen     int
	owner    func() error        // ends the program that owns the tables
	held     []net.Listener      // of the step hold
	root     string              // file system of the DaemonSet's containers
	path     string              // environment variable PATH of users
	kubelets map[string]*kubelet // by node
}

func newStory(t testing.TB) *story {
	return &story{t: t, proxies: map[string]*proxy{}, kubelets: map[string]*kubelet{}}
}

func (s *story) commands() map[string]script.Command {
	all := map[string]script.Command{}
	for _, steps := range []map[string]any{
		s.apiSteps(), s.trafficSteps(), s.proxySteps(), s.nodeSteps(), s.toolSteps(),
	} {
		for name, step := range script.Steps(steps) {
			all[name] = func(ts *script.Script, args []string) (text string, err error) {
				defer func() { // too few arguments, or a proxy that was not started
					switch r := recover().(type) {
					case nil:
					case runtime.Error:
						err = fmt.Errorf("%s %q: %w: see the steps in doc.go", name, args, r)
					default:
						panic(r) // of Fatalf
					}
				}()
				if s.world != nil {
					s.script = ts
				} else if err := s.begin(ts, name, args); err != nil {
					return "", err
				}
				return step(ts, args)
			}
		}
	}
	return all
}

// begin creates the world for the step cluster.
func (s *story) begin(ts *script.Script, name string, args []string) error {
	switch {
	case name != "cluster":
		return fmt.Errorf("the first step must be cluster")
	case len(args) > 0:
		s.world = newBareWorld(s.t)
	default:
		s.world = newWorld(s.t)
	}
	s.script = ts
	ts.Setenv("KUBECONFIG", s.config)
	ts.Setenv("CLUSTER_CIDR", ranges())
	ts.Setenv("NFTPROXY", program(product))
	ts.Setenv("SERVER", s.URL())
	ts.Setenv("TOKEN", s.token)
	ts.Setenv("WRONG_CA", base64.StdEncoding.EncodeToString(wrongCA()))
	host, err := os.Hostname()
	s.must(err)
	ts.Setenv("HOSTNAME", strings.ToLower(host))
	for name, pod := range s.pods {
		ts.Setenv(name, pod.IPv4.String())
		ts.Setenv(name+"v6", pod.IPv6.String())
	}
	return nil
}

// wrongCA returns the certificate of an authority that no API server has.
var wrongCA = sync.OnceValue(func() []byte {
	other, _, err := cert.GenerateSelfSignedCertKey("other", nil, nil)
	if err != nil {
		panic(err)
	}
	return other
})

// apiSteps are changes of the API, and of the API servers.
func (s *story) apiSteps() map[string]any {
	return map[string]any{
		"cluster": func([]string) {},
		"kubectl": func(args []string) (string, error) { return s.kubectl("", args...), nil },
		"apply": func(files []string) {
			for _, file := range files {
				s.apply(s.expanded(file))
			}
		},
		"expose": func(args []string) {
			s.expose(args[0], args[1:])
			s.script.Setenv(args[0], s.service(args[0]).Spec.ClusterIP)
		},
		"endpoints": func(args []string) {
			slices, pods, changed := args[0], args[1:], time.Time{}
			if n := len(pods) - 2; n >= 0 && pods[n] == "changed" {
				ago, err := time.ParseDuration(pods[n+1])
				s.must(err)
				pods, changed = pods[:n], time.Now().Add(-ago)
			} else if n >= 0 && pods[n] == "in" {
				pods, slices = pods[:n], pods[n+1]
			}
			s.setEndpoints(args[0], slices, pods, changed)
		},
		"delete": func(service string) { s.delete(service) },
		"many": func(n int) { // more rows to write
			for i := range n {
				s.expose(fmt.Sprintf("other-%d", i), []string{"a1", "a2", "b1", "b2"})
			}
		},
		"apiserver": func(args []string) {
			switch strings.Join(args, " ") {
			case "kill":
				s.must(s.APIServer.Kill())
			case "start":
				s.began = time.Now()
				s.must(s.APIServer.Start(s.ctx()))
			case "start other":
				var err error
				s.other, err = s.StartAPIServer(s.ctx(), 6444)
				s.must(err)
			case "stop other":
				s.must(s.other.Stop())
				s.other = nil
			default:
				s.must(fmt.Errorf("got %q, want kill, start, start other or stop other", args))
			}
		},
		"compact": func() error {
			later := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "later", Namespace: "default"}}
			for range 3 { // revisions that no proxy has seen
				if err := s.Store(s.ctx(), map[string]object.Object{"configmaps/default/later": later}); err != nil {
					return err
				}
			}
			return s.Compact(s.ctx())
		},
		"network": func(change string) error {
			if change == "cut" {
				return s.Isolate(s.Node1.Namespace)
			}
			return s.Rejoin(s.Node1.Namespace)
		},
		"requests":  s.requests,
		"requested": s.awaitRequests,
	}
}

// requests returns a line with the decision, the verb and the resource of each
// request of the proxy.
func (s *story) requests() (string, error) {
	requests, err := s.APIServer.Requests()
	var text strings.Builder
	for _, r := range requests {
		decision := "refused"
		if r.Allowed() {
			decision = "allowed"
		}
		fmt.Fprintln(&text, decision, r.Verb, r.Object.Resource)
	}
	return text.String(), err
}

// awaitRequests waits until the proxy has requested resources since a proxy or
// the API server was last started. The first argument is any, list for full
// lists, alone or before a watch, or refused for three refused requests.
func (s *story) awaitRequests(args []string) {
	counts, least := map[string]func(cluster.Request) bool{
		"any": func(cluster.Request) bool { return true },
		"list": func(r cluster.Request) bool {
			return r.Verb == "list" || strings.Contains(r.URI, "sendInitialEvents=true")
		},
		"refused": func(r cluster.Request) bool { return !r.Allowed() },
	}[args[0]], 1
	if args[0] == "refused" {
		least = 3
	}
	for _, resource := range args[1:] {
		eventually(s.t, "requests for "+resource, func() error {
			requests, err := s.APIServer.Requests()
			n := 0
			for _, r := range requests {
				if r.Object.Resource == resource && r.Received.After(s.began) && counts(r) {
					n++
				}
			}
			if err == nil && n < least {
				err = fmt.Errorf("got %d %s since %v, want %d", n, args[0], s.began, least)
			}
			return err
		})
	}
}

// trafficSteps are connections, and what they meet.
func (s *story) trafficSteps() map[string]any {
	return map[string]any{
		"served": func(service string) string { return s.connect(s.routes(service)...) },
		"connect": func(args []string) (string, error) {
			return s.connect(s.route(args)), nil
		},
		"reached": func(args []string) {
			eventually(s.t, args[0], func() error {
				if got := s.connect(s.routes(args[0])...); strings.Contains(got, "none") {
					return errors.New(got)
				}
				return nil
			})
		},
		"source": func(args []string) (string, error) { return s.sources(s.route(args)), nil },
		"chosen": func(args []string) (string, error) {
			if len(args) > 1 {
				return chosen(s.ctx(), s.route(args))
			}
			return chosen(s.ctx(), s.routes(args[0])...)
		},
		"sticks": s.sticks,
		"flows":  s.movesFlows,
		"stream": func(args []string) (string, error) {
			var routes, guarded []route
			for _, name := range args {
				way, isGuarded := strings.CutPrefix(name, "no:")
				parts := strings.Split(way, ":")
				switch {
				case len(parts) < 3:
					routes = append(routes, s.routes(name)...)
				case isGuarded:
					guarded = append(guarded, s.route([]string{parts[0], "->", parts[1], parts[2]}))
				default:
					routes = append(routes, s.route([]string{parts[0], "->", parts[1], parts[2]}))
				}
			}
			s.stream = startStream(s.t, routes, guarded)
			return "", nil
		},
		"phase":    func(args []string) { s.stream.phase(strings.Join(args, " ")) },
		"pass":     func() { s.stream.pass(s.t, *attempts) },
		"unbroken": func() (string, error) { return s.stream.result() },
		"sleep":    time.Sleep,
	}
}

// sticks returns an error unless each client in the cluster reaches one pod
// only at the ClusterIPs and LoadBalancer IPs of a Service.
func (s *story) sticks(service string, pods []string) (string, error) {
	to := slices.Concat(s.frontends(service, "clusterIP"), s.frontends(service, "loadBalancerIP"))
	lines, err := chosen(s.ctx(), route{s.at("a1"), to}, route{s.at("node1"), to})
	for line := range strings.Lines(lines) {
		if pod := line[strings.LastIndex(line, " ")+1:]; !slices.Contains(pods, strings.TrimSpace(pod)) {
			return "", fmt.Errorf("got %s, want one of %v", line, pods)
		}
	}
	return lines, err
}

// route returns the route of FROM -> SERVICE KIND.
func (s *story) route(args []string) route {
	if len(args) != 4 || args[1] != "->" {
		s.must(fmt.Errorf("got %q, want FROM -> SERVICE KIND", args))
	}
	to := s.frontends(args[2], args[3])
	if len(to) == 0 {
		s.must(fmt.Errorf("Service %s has no %s", args[2], args[3]))
	}
	return route{s.at(args[0]), to}
}

// nodeSteps are programs on nodes, and their tables.
func (s *story) nodeSteps() map[string]any {
	return map[string]any{
		"on": func(args []string) (string, error) {
			out, err := s.at(args[0]).Command(s.ctx(), args[1], args[2:]...).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("%w\n%s", err, out)
			}
			return string(out), err
		},
		"tables": func() string {
			if foreign() {
				return ""
			}
			return s.tables()
		},
		"monitor":   s.changes,
		"written":   s.onlyWritten,
		"unwritten": s.unwritten,
		"take":      s.takeTables,
		"return":    func() error { return s.owner() },
	}
}

// changes returns the changes of the tables since the last call. The first
// call starts to record.
func (s *story) changes() string {
	if s.monitor == nil {
		before := s.listeners()
		process, err := s.Node1.StartProcess(context.Background(), lab.ProcessConfig{
			Program: "nft", Args: []string{"monitor"}, Log: filepath.Join(s.t.TempDir(), "monitor"),
		})
		s.must(err)
		s.monitor = process
		s.t.Cleanup(func() { process.End(syscall.SIGKILL) })
		eventually(s.t, "nft listens to changes", func() error {
			if s.listeners() <= before {
				return errors.New("it is not a member of the multicast group yet")
			}
			return nil
		})
	}
	text := s.monitor.Log()[s.seen:]
	s.seen += len(text)
	return text
}

// listeners returns the number of sockets in node1 that receive notifications
// of nf_tables.
func (s *story) listeners() (n int) {
	s.must(s.Node1.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/netlink")
		for line := range strings.Lines(string(text)) {
			field := strings.Fields(line) // sk, Eth, Pid, Groups, ...
			if len(field) < 4 || field[1] != strconv.Itoa(unix.NETLINK_NETFILTER) {
				continue
			}
			groups, err := strconv.ParseUint(field[3], 16, 32)
			if err == nil && groups>>(unix.NFNLGRP_NFTABLES-1)&1 == 1 {
				n++
			}
		}
		return err
	}))
	return n
}

// unwritten returns an error unless some rows were written since the last
// changes, and none of a Service. kube-proxy sometimes rewrites all rules, so
// only the product is checked. It ends the record.
func (s *story) unwritten(service string) error {
	text := s.changes()
	s.monitor.End(syscall.SIGKILL)
	s.monitor, s.seen = nil, 0
	if text == "" && !foreign() {
		return fmt.Errorf("got no changes of the tables, want some")
	}
	for line := range strings.Lines(text) {
		if slices.ContainsFunc(s.service(service).Spec.ClusterIPs, func(ip string) bool {
			return strings.Contains(line, ip+" ") && subjectName() == product
		}) {
			return fmt.Errorf("unneeded change: %s", line)
		}
	}
	return nil
}

// onlyWritten returns an error unless the changes since the last call are at
// most four transactions, and rows of a Service or with the address of a pod.
func (s *story) onlyWritten(service, pod string) error {
	text := s.changes()
	const most = 4
	if n := strings.Count(text, "new generation"); n == 0 || n > most {
		return fmt.Errorf("got %d transactions for a change of one Service, want 1 to %d:\n%s", n, most, text)
	}
	mentions := []string{s.at(pod).IPv4.String(), s.at(pod).IPv6.String()}
	for _, f := range s.frontends(service, "clusterIP") {
		mentions = append(mentions, f.To.Addr().String()+" ")
	}
	for _, f := range s.frontends(service, "nodePort") {
		mentions = append(mentions, fmt.Sprintf(" %d ", f.To.Port()))
	}
	for line := range strings.Lines(text) {
		mentioned := slices.ContainsFunc(mentions, func(part string) bool { return strings.Contains(line, part) })
		if strings.Contains(line, "element") && !mentioned {
			return fmt.Errorf("unneeded change: %s", line)
		}
	}
	return nil
}

// nodeState returns the tables, addresses and sysctls of node1.
func (s *story) nodeState() string {
	var settings strings.Builder
	s.must(s.Node1.Do(func() error {
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
	return s.tables() + s.run(s.Node1.Namespace, "ip", "-oneline", "address") + settings.String()
}

// expanded returns a file of the script with the values of variables.
func (s *story) expanded(file string) string {
	return os.Expand(s.script.ReadFile(file), s.script.Getenv)
}

// takeTables replaces the tables kube-proxy of node1 with empty ones that a
// program owns. When it ends, the kernel removes the tables.
func (s *story) takeTables() {
	cmd := s.Node1.Command(context.Background(), "nft", "--interactive")
	in, err := cmd.StdinPipe()
	s.must(err)
	s.must(cmd.Start())
	s.owner = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	s.t.Cleanup(func() { _ = s.owner() }) // an error after an earlier call
	for _, family := range []string{"ip", "ip6"} {
		_, err := fmt.Fprintf(in, "delete table %s kube-proxy; add table %[1]s kube-proxy { flags owner; }\n", family)
		s.must(err)
	}
	eventually(s.t, "owner of the tables", func() error {
		if tables := s.tables(); strings.Count(tables, "flags owner") < 2 {
			return fmt.Errorf("got %s", tables)
		}
		return nil
	})
}
