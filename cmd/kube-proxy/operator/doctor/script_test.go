package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/answer"
	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/doctor"
	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/nfnetlink"
	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/proxier/ruleset"
	"github.com/nftproxy/nftproxy/proxier/table"
	"github.com/nftproxy/nftproxy/test/script"
	"github.com/nftproxy/nftproxy/test/tabletest"
)

// TestScripts runs the scripts about the checks of a node. These are their
// steps, besides exec and other standard ones:
//
//	node [OPTION]               makes a healthy node; the options are in detections and hosts=N
//	proxy [FILE]                makes the proxy run, with a status in YAML
//	services FILE               makes the proxy serve Services
//	nodes FILE                  makes the proxy know endpoints of nodes
//	busy                        makes the proxy fail to list its Services
//	root DIR                    makes the checks read DIR/proc and DIR/sys
//	check NAME RESULT [TEXT]    runs a check; the result is ok, info, warn, fail or skipped,
//	                            and the reason or the details contain the text
//	iptables FILE RESULT [TEXT] makes a healthy node, and for each variant of iptables, loads
//	                            the lines of the file, and checks filters
//	listen NUMBER               makes a program listen to a queue of packets
//	serve ADDRESS:PORT          makes a program listen for TCP connections
func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{Namespace: true, Setup: func(e *script.Env) (map[string]script.Command, error) {
		s := &state{t: e.T}
		s.config.ProxyError = errors.New("nothing listens")
		return script.Steps(map[string]any{
			"node": s.node, "proxy": s.proxy, "services": s.services, "nodes": s.nodes, "busy": s.busy, "root": s.root,
			"check": s.check, "iptables": s.iptables, "listen": s.listen, "serve": s.serve,
		}), nil
	}})
}

// detections are the options of a node for the detection of local traffic.
var detections = map[string]ruleset.LocalDetection{
	"interface-prefix=pod":  {Mode: ruleset.DetectLocalInterfaceNamePrefix, InterfaceNamePrefix: "pod"},
	"interface-prefix=cali": {Mode: ruleset.DetectLocalInterfaceNamePrefix, InterfaceNamePrefix: "cali"},
	"bridge=cni0":           {Mode: ruleset.DetectLocalBridgeInterface, BridgeInterface: "cni0"},
	"no-cluster-cidr":       {Mode: ruleset.DetectLocalClusterCIDR},
}

type state struct {
	t      testing.TB
	config doctor.Config
}

func (s *state) node(options ...string) error {
	rules, hosts := tabletest.Rules(), 0
	for _, arg := range options {
		if n, ok := strings.CutPrefix(arg, "hosts="); ok {
			hosts, _ = strconv.Atoi(n)
			continue
		}
		detect, ok := detections[arg]
		if !ok {
			return fmt.Errorf("unknown option %s", arg)
		}
		rules.DetectLocal = detect
	}
	healthyWith(s.t, rules, hosts)
	return nil
}

func (s *state) proxy(sc *script.Script, files ...string) error {
	s.config.Proxy, s.config.ProxyError = new(answer.ProxyStatus), nil
	if len(files) == 0 {
		return nil
	}
	return yaml.UnmarshalStrict([]byte(sc.ReadFile(files[0])), s.config.Proxy)
}

func (s *state) nodes(sc *script.Script, file string) error {
	var nodes []answer.NodeEndpoints
	s.config.Nodes = func(context.Context) iter.Seq2[*answer.NodeEndpoints, error] {
		return func(yield func(*answer.NodeEndpoints, error) bool) {
			for i := range nodes {
				if !yield(&nodes[i], nil) {
					return
				}
			}
		}
	}
	return yaml.UnmarshalStrict([]byte(sc.ReadFile(file)), &nodes)
}

func (s *state) services(sc *script.Script, file string) error {
	tables, err := table.New(table.Config{Rules: tabletest.Rules()}, nft.IPv4, nft.IPv6)
	if err != nil {
		return err
	}
	views := make(map[cluster.ServiceName]*table.ServiceView)
	for _, t := range tables {
		if err := tabletest.Apply(t, sc.ReadFile(file)); err != nil {
			return err
		}
		for name := range t.ServiceNames() {
			if view, ok := t.Service(name); ok && views[name] == nil {
				views[name] = &view
			} else if ok {
				views[name].Add(&view)
			}
		}
	}
	s.config.Services = func(context.Context) iter.Seq2[*table.ServiceView, error] {
		return func(yield func(*table.ServiceView, error) bool) {
			for _, name := range slices.SortedFunc(maps.Keys(views), cluster.ServiceName.Compare) {
				if !yield(views[name], nil) {
					return
				}
			}
		}
	}
	s.config.Endpoints = func(ctx context.Context) iter.Seq2[*answer.PortEndpoints, error] {
		return func(yield func(*answer.PortEndpoints, error) bool) {
			for view := range s.config.Services(ctx) {
				for _, p := range answer.EndpointsOf(view) {
					if !yield(&p, nil) {
						return
					}
				}
			}
		}
	}
	return nil
}

func (s *state) busy() {
	s.config.Services = func(context.Context) iter.Seq2[*table.ServiceView, error] {
		return func(yield func(*table.ServiceView, error) bool) { yield(nil, errors.New("busy")) }
	}
	s.config.Endpoints = func(context.Context) iter.Seq2[*answer.PortEndpoints, error] {
		return func(yield func(*answer.PortEndpoints, error) bool) { yield(nil, errors.New("busy")) }
	}
}

func (s *state) root(sc *script.Script, dir string) { s.config.Root = sc.MkAbs(dir) }

func (s *state) check(check, result string, words ...string) (string, error) {
	contains := strings.Join(words, " ")
	for _, f := range doctor.Run(context.Background(), s.config).Findings {
		if f.Check != check {
			continue
		}
		text := f.Reason + "\n" + strings.Join(append(f.Details, ""), "\n")
		text = regexp.MustCompile(` \(handle \d+\)`).ReplaceAllString(text, "")
		if string(f.Result) != result || !strings.Contains(text, contains) {
			return "", fmt.Errorf("got %s: %s\nwant %s with %q", f.Result, text, result, contains)
		}
		if f.Bad() && f.Remedy == "" {
			return "", errors.New("got no remedy")
		}
		return text, nil
	}
	return "", errors.New("no such check")
}

func (s *state) listen(number string) error {
	const config, command, bind = unix.NFNL_SUBSYS_QUEUE<<8 | 2, 1, 1 // linux/netfilter/nfnetlink_queue.h
	queue, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return err
	}
	socket, err := nfnetlink.Open(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return err
	}
	s.t.Cleanup(func() { _ = socket.Close() })
	var w nfnetlink.Writer
	at := w.Begin(config, unix.NLM_F_REQUEST|unix.NLM_F_ACK, 0, uint16(queue))
	w.Bytes(command, []byte{bind, 0, 0, 0})
	w.End(at)
	return socket.Request(&w, func(nfnetlink.Message) error { return nil })
}

func (s *state) serve(at string) error {
	l, err := net.Listen("tcp", at)
	if err == nil {
		s.t.Cleanup(func() { _ = l.Close() })
	}
	return err
}

func (s *state) iptables(sc *script.Script, file, result string, words ...string) (string, error) {
	if err := s.node(); err != nil {
		return "", err
	}
	rules := map[string]string{"mangle": "*mangle\n", "filter": "*filter\n"}
	for line := range strings.Lines(sc.ReadFile(file)) {
		table, rule := "filter", line
		if rest, ok := strings.CutPrefix(line, "-t mangle "); ok {
			table, rule = "mangle", rest
		}
		rules[table] += rule
	}
	var found string
	for _, variant := range []string{"nft", "legacy"} {
		restore := func(filter, mangle string) error {
			command := exec.Command("iptables-"+variant+"-restore", "-w")
			command.Stdin = strings.NewReader(filter + "COMMIT\n" + mangle + "COMMIT\n")
			if out, err := command.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", command, err, out)
			}
			return nil
		}
		err := restore(rules["filter"], rules["mangle"])
		if err == nil {
			found, err = s.check("filters", result, words...)
		}
		if err = errors.Join(err, restore("*filter\n:FORWARD ACCEPT\n", "*mangle\n")); err != nil {
			return "", fmt.Errorf("%s: %w", variant, err)
		}
	}
	return found, nil
}
