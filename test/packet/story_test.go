package packet

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/oracle"
	"github.com/nftproxy/nftproxy/test/script"
)

// TestScripts runs the scripts of testdata/scripts. doc.go describes their
// steps.
func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{
		Judges: []string{"connect", "ask", "await", "traced", "grows"},
		Setup: func(e *script.Env) (map[string]script.Command, error) {
			s := &story{env: e, kept: map[string][2]string{}}
			s.steps = s.allSteps()
			commands := map[string]script.Command{"cluster": s.command(newStoryCluster)}
			for name, f := range s.steps {
				commands[name] = s.command(f)
			}
			return commands, nil
		},
	})
}

// story is a running script. It has the cluster that the step "cluster"
// creates.
type story struct {
	*cluster
	env    *script.Env
	script *script.Script
	steps  map[string]step
	kept   map[string][2]string // tables of both nodes, by name

	awaiting  bool               // the step is repeated
	choices   map[string]choice  // by name
	held      map[string][]*held // by name
	flowPorts int                // number of UDP flows
	traffic   *traffic           // nil if there is none
	servers   map[string]servers // of endpoints that were scaled, by pod
	wanted    []string           // pods with servers that do not terminate
}

// step is a step of a script. It returns what the step prints, and reports
// errors to t, where Fatalf ends the step.
type step func(s *story, t testing.TB, args []string) string

// command returns a step as a command of scripts.
func (s *story) command(f step) script.Command {
	return func(running *script.Script, args []string) (string, error) {
		s.script = running
		return s.try(f, args)
	}
}

// try runs a step and returns its errors.
func (s *story) try(f step, args []string) (text string, err error) {
	t := &stepT{TB: s.env.T}
	if s.cluster != nil {
		s.cluster.t, s.oracles = t, map[*lab.Node]*oracle.Cluster{}
	}
	defer func() {
		if r := recover(); r != nil && r != any(t) {
			panic(r)
		}
		err = errors.Join(t.errs...)
	}()
	return f(s, t, args), nil
}

// stepT is the T of a step.
type stepT struct {
	testing.TB
	errs []error
}

func (t *stepT) Errorf(format string, args ...any) {
	t.errs = append(t.errs, fmt.Errorf(format, args...))
}

func (t *stepT) Error(args ...any) { t.Errorf("%s", fmt.Sprint(args...)) }

func (t *stepT) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	panic(t)
}

func (t *stepT) Fatal(args ...any) { t.Fatalf("%s", fmt.Sprint(args...)) }

// newStoryCluster is the first step of each script.
func newStoryCluster(s *story, _ testing.TB, args []string) string {
	s.cluster = newCluster(s.env.T, args...)
	s.isStory = true
	return ""
}

// allSteps returns the steps by name.
func (s *story) allSteps() map[string]step {
	all := map[string]step{
		"add": (*story).add, "listen": (*story).listen, "sysctl": (*story).sysctl, "on": (*story).on,
		"apply": (*story).applyFiles, "absent": (*story).absent, "spec": (*story).spec, "label": (*story).label,
		"endpoints": (*story).endpoints, "remove": (*story).removeObjects,
		"terminate": onProxies((*cluster).terminate), "kill": onProxies((*cluster).kill),
		"start": onProxies((*cluster).start), "settle": onProxies((*cluster).settle),
		"signal": (*story).signal, "ended": (*story).ended,
		"flags": (*story).flags, "restart": (*story).again,
		"check": (*story).check, "connect": (*story).connect, "await": (*story).await,
		"keep": (*story).keep, "same": (*story).same, "like-new": (*story).likeNew,
		"chains": (*story).chains, "cleanup": (*story).cleanup, "remove-interface": (*story).removeInterface,
		"bridge": (*story).bridge, "nodeports": (*story).nodePorts,
	}
	for _, topic := range []map[string]step{
		choiceSteps(), heldSteps(), observationSteps(), trafficSteps(), traceSteps(),
	} {
		maps.Copy(all, topic)
	}
	return all
}

// add adds what a cluster does not have:
//
//	add pod NAME NODE [bridge=NAME] [interface=NAME]
//	add endpoints N                  pods e0, e1, … on both nodes in turn
//	add place NAME NODE IPV4 IPV6    addresses of a node, on an own interface
//	add client NAME IPV4 IPV6        addresses of the client
//	add clients N                    client-0, client-1, …
//	add loopback                     node1, with its address 127.0.0.1 or ::1
func (s *story) add(t testing.TB, args []string) string {
	switch kind, args := args[0], args[1:]; kind {
	case "pod":
		config := lab.PodConfig{Name: args[0]}
		for _, arg := range args[2:] {
			switch key, value, _ := strings.Cut(arg, "="); key {
			case "bridge":
				config.Bridge = value
			case "interface":
				config.HostInterface = value
			}
		}
		s.addPod(s.node(args[1]), config)
	case "endpoints":
		return s.addEndpoints(s.number(args[0]))
	case "place":
		s.addPlace(args[0], s.node(args[1]), pair(args[2], args[3]))
	case "client":
		s.addClient(args[0], pair(args[1], args[2]))
	case "clients":
		return s.addClients(s.number(args[0]))
	case "loopback":
		s.addOrigin("loopback", s.Node1.Namespace, s.place("loopback"))
	default:
		t.Fatalf("cannot add a %s", kind)
	}
	return ""
}

// node returns a node by its name.
func (c *cluster) node(name string) *lab.Node {
	if name == c.Node2.Name {
		return c.Node2
	}
	return c.Node1
}

// proxy returns the proxy of a node.
func (c *cluster) proxy(node string) *proxy { return c.proxies[slices.Index(c.Nodes(), c.node(node))] }

// addEndpoints adds pods to both nodes in turn, and returns their names.
func (c *cluster) addEndpoints(n int) string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprint("e", i))
		c.addPod(c.Nodes()[i%2], lab.PodConfig{Name: names[i]})
	}
	return strings.Join(names, " ")
}

// addClients adds clients outside the cluster, and returns their names.
func (c *cluster) addClients(n int) string {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprint("client-", i))
		c.addClient(names[i], [2]netip.Addr{
			lab.AddrIn(netip.MustParsePrefix("198.19.0.0/24"), i+1),
			lab.AddrIn(netip.MustParsePrefix("fd00:19::/64"), i+1),
		})
	}
	return strings.Join(names, " ")
}

// listen starts servers: listen PORT WHERE...
func (s *story) listen(t testing.TB, args []string) string {
	for _, name := range args[1:] {
		labtest.Serve(t, uint16(s.number(args[0])), s.origin(name).Namespace)
	}
	return ""
}

// sysctl sets a kernel parameter: sysctl WHERE... NAME VALUE
func (s *story) sysctl(t testing.TB, args []string) string {
	n := len(args) - 2
	for _, name := range args[:n] {
		if err := s.origin(name).SetSysctl(args[n], args[n+1]); err != nil {
			t.Fatal(err)
		}
	}
	return ""
}

// on runs a program: on WHERE[,WHERE...] PROGRAM ARG...
func (s *story) on(t testing.TB, args []string) (output string) {
	for name := range strings.SplitSeq(args[0], ",") {
		cmd := s.origin(name).Command(t.Context(), args[1], args[2:]...)
		cmd.Dir = s.script.MkAbs(".")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		output += string(out)
	}
	return output
}

// applyFiles writes the objects of files and waits until they are in effect.
func (s *story) applyFiles(_ testing.TB, files []string) string {
	for _, file := range files {
		s.apply(s.script.ReadFile(file))
	}
	s.settle()
	return ""
}

// absent names a Service that does not exist, to use its addresses: absent NAME
// number: NUMBER, …
func (s *story) absent(_ testing.TB, args []string) string {
	s.services[args[0]] = s.parse("{name: " + args[0] + ", " + strings.Join(args[1:], " ") + "}")
	return ""
}

// spec replaces the spec of a Service: spec NAME type: NodePort, …
func (s *story) spec(t testing.TB, args []string) string {
	old := s.service(args[0])
	var spec map[string]any
	if err := yaml.Unmarshal([]byte("{"+strings.Join(args[1:], " ")+"}"), &spec); err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(map[string]any{"name": old.Name, "spec": spec, "protocols": old.Protocols})
	if err != nil {
		t.Fatal(err)
	}
	s.serve(string(text))
	return ""
}

// label replaces the labels of a node: label NODE KEY=VALUE...
func (s *story) label(_ testing.TB, args []string) string {
	labels := map[string]string{}
	for _, arg := range args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		labels[key] = value
	}
	s.writeNode(s.node(args[0]), labels)
	s.settle()
	return ""
}

// endpoints replaces the endpoints of Services: endpoints NAME[,NAME...]
// ENDPOINT...
func (s *story) endpoints(_ testing.TB, args []string) string {
	s.setEndpoints(strings.Join(args[1:], " "), strings.Split(args[0], ",")...)
	return ""
}

// removeInterface removes an interface that a place has: remove-interface NODE
// NAME
func (s *story) removeInterface(t testing.TB, args []string) string {
	if err := s.node(args[0]).RemoveInterface(args[1]); err != nil {
		t.Fatal(err)
	}
	return ""
}

// bridge adds pods of node1 behind one bridge, whose frames pass the packet
// filter: bridge POD...
func (s *story) bridge(_ testing.TB, names []string) string {
	s.addBridgedPods(names...)
	return ""
}

// addBridgedPods adds pods of node1 behind one bridge. All but the last one
// send frames to each other directly. The frames pass the packet filter.
func (c *cluster) addBridgedPods(names ...string) {
	c.t.Helper()
	for _, name := range names {
		c.addPod(c.Node1, lab.PodConfig{Name: name, Bridge: "cbr0"})
	}
	for _, from := range names[:len(names)-1] {
		for _, to := range names[:len(names)-1] {
			for _, addr := range c.pods[to].Addrs() {
				if from == to {
					continue
				}
				if err := c.pods[from].ReplaceLinkRoute(single(addr)); err != nil {
					c.t.Fatal(err)
				}
			}
		}
	}
	for _, name := range []string{"net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables"} {
		if err := c.Node1.SetSysctl(name, "1"); err != nil {
			c.t.Fatalf("sysctl of br_netfilter: %v", err)
		}
	}
}

// nodePorts checks the NodePorts of the Services web, none and local at open
// places of node1, and the node's own servers at closed ones: nodeports
// PLACE... but not PLACE...
func (s *story) nodePorts(t testing.TB, args []string) string {
	var todo checks
	expect := func(name, line string) { todo = append(todo, s.checks(s.service(name), line)...) }
	open := true
	for _, place := range args {
		clients := "client pod1 pod2 node2 " + place + " -> nodePort@" + place
		switch {
		case place == "but" || place == "not":
			open = false
		case open:
			expect("web", clients+" => a1 as node1")
			expect("none", clients+" => refused")
			expect("local", "client -> nodePort@"+place+" => a1 as itself")
		default:
			for _, name := range []string{"web", "none", "local"} {
				expect(name, clients+" => node1 as itself")
			}
		}
	}
	for _, name := range []string{"web", "none", "local"} {
		expect(name, "loopback -> nodePort@loopback => node1 as itself")
	}
	todo.run(t)
	return ""
}

func (s *story) removeObjects(_ testing.TB, args []string) string {
	s.remove(args...)
	return ""
}
