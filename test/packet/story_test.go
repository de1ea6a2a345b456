package packet

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/oracle"
	"github.com/nftproxy/nftproxy/test/script"
)

// TestScripts runs the scripts of testdata/scripts.
func TestScripts(t *testing.T) {
	script.Run(t, storySuite(func(*story) map[string]any { return nil }))
}

// storySuite returns a suite of scripts with all steps, and with more.
func storySuite(more func(*story) map[string]any) script.Suite {
	return script.Suite{
		Judges: []string{"connect", "ask", "await", "traced", "grows", "spread"},
		Setup: func(e *script.Env) (map[string]script.Command, error) {
			s := &story{
				env: e, cluster: &cluster{}, kept: map[string][2]string{}, choices: map[string]choice{},
				held: map[string][]*held{}, servers: map[string]servers{}, tracings: map[string]*tracing{},
			}
			s.steps = s.allSteps()
			maps.Copy(s.steps, script.Steps(more(s)))
			commands := map[string]script.Command{}
			for name, f := range s.steps {
				commands[name] = s.command(f)
			}
			return commands, nil
		},
	}
}

// story is a running script. It has the cluster that the step "cluster"
// creates. A step reports errors to the t of the cluster, where Fatalf ends the
// step.
type story struct {
	*cluster
	env    *script.Env
	script *script.Script
	steps  map[string]script.Command
	kept   map[string][2]string // tables of both nodes, by name

	awaiting  bool               // the step is repeated
	choices   map[string]choice  // by name
	held      map[string][]*held // by name
	flowPorts int                // number of UDP flows
	traffic   *traffic           // nil if there is none
	servers   map[string]servers // of endpoints that were scaled, by pod
	wanted    []string           // pods with servers that do not terminate
	tracings  map[string]*tracing
}

// command returns a step as a command of scripts.
func (s *story) command(f script.Command) script.Command {
	return func(running *script.Script, args []string) (string, error) {
		s.script = running
		return s.try(f, args)
	}
}

// try runs a step and returns its errors.
func (s *story) try(f script.Command, args []string) (text string, err error) {
	t := &stepT{TB: s.env.T}
	s.t, s.oracles = t, map[*lab.Node]*oracle.Cluster{}
	defer func() {
		if r := recover(); r != nil && r != any(t) {
			panic(r)
		}
		err = errors.Join(append(t.errs, err)...)
	}()
	return f(s.script, args)
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

// create is the first step of each script. It starts a cluster with flags
// besides the default ones.
func (s *story) create(flags ...string) {
	s.setUp(s.env.T, append(defaultFlags(), flags...)...)
	s.start()
	s.isStory = true
}

// allSteps returns the steps by name.
func (s *story) allSteps() map[string]script.Command {
	all := map[string]any{
		"cluster": s.create, "add": s.add, "listen": s.listen, "serve": s.startServers, "shut": s.stopServers,
		"sysctl": s.sysctl, "on": s.on,
		"apply": s.applyFiles, "absent": s.absent, "spec": s.spec, "label": s.label,
		"endpoints": s.endpoints, "avoided": s.avoid, "remove": s.remove,
		"terminate": s.terminate, "crash": s.kill, "interrupt": s.interrupt, "start": s.start, "settle": s.settle,
		"signal": s.signal,
		// waits until the proxy of a node has ended.
		"ended": func(node string) { s.proxy(node).wait(s.t) },
		"flags": s.flags, "restart": s.again,
		"check": s.check, "connect": s.connect, "other-tables": s.otherTables, "await": s.await,
		"keep": s.keep, "same": s.same,
		// compares the tables of both nodes with those of new proxies.
		"like-new": func() { s.expectFresh(s.t) },
		"chains":   s.chains, "cleanup": s.cleanup, "remove-interface": s.removeInterface,
		"bridge": s.addBridgedPods, "nodeports": s.nodePorts, "example": s.example,
		"sleep": time.Sleep, // waits for a time.
	}
	for _, topic := range []map[string]any{
		s.choiceSteps(), s.heldSteps(), s.repeatSteps(), s.observationSteps(), s.trafficSteps(), s.traceSteps(),
		s.tracingSteps(),
	} {
		maps.Copy(all, topic)
	}
	return script.Steps(all)
}

// add adds pod NAME NODE [bridge=NAME] [interface=NAME]; endpoints N: the pods
// e0, e1, and so on, on both nodes in turn, whose names it returns; place NAME
// NODE IPV4 IPV6: addresses of a node, on an interface of their own; client
// NAME IPV4 IPV6; clients N: client-0, client-1, and so on; loopback: 127.0.0.1
// and ::1 of node1 as a client.
func (s *story) add(kind string, args ...string) string {
	switch kind {
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
		s.t.Fatalf("cannot add a %s", kind)
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

// listen starts servers.
func (s *story) listen(port uint16, where ...string) {
	for _, name := range where {
		labtest.Serve(s.t, port, s.origin(name).Namespace)
	}
}

// sysctl WHERE... NAME VALUE sets a kernel parameter.
func (s *story) sysctl(args ...string) {
	n := len(args) - 2
	for _, name := range args[:n] {
		must.NoError(s.t, s.origin(name).SetSysctl(args[n], args[n+1]))
	}
}

// on runs a program at WHERE[,WHERE...], and prints its output.
func (s *story) on(where, program string, args ...string) (output string) {
	for name := range strings.SplitSeq(where, ",") {
		cmd := s.origin(name).Command(s.t.Context(), program, args...)
		cmd.Dir = s.script.MkAbs(".")
		out, err := cmd.CombinedOutput()
		if err != nil {
			s.t.Fatalf("%v: %s", err, out)
		}
		output += string(out)
	}
	return output
}

// applyFiles writes the objects of files and waits until they are in effect.
func (s *story) applyFiles(files ...string) {
	for _, file := range files {
		s.apply(s.script.ReadFile(file))
	}
	s.settle()
}

// example prints the code block after a heading of a page in docs, with OLD=NEW
// replaced.
func (s *story) example(page, heading string, replace ...string) string {
	text, err := os.ReadFile("../../docs/" + page)
	must.NoError(s.t, err)
	block := regexp.MustCompile("(?s)## " + heading + ".*?```(?:yaml)?\n(.*?)```").FindSubmatch(text)
	if block == nil {
		s.t.Fatalf("no example")
	}
	code := string(block[1])
	for _, arg := range replace {
		old, new, _ := strings.Cut(arg, "=")
		if !strings.Contains(code, old) {
			s.t.Fatalf("the example has no %s", old)
		}
		code = strings.ReplaceAll(code, old, new)
	}
	return code
}

// absent SERVICE number: N, ... names a Service that does not exist, to use its
// addresses.
func (s *story) absent(name string, fields ...string) {
	s.services[name] = s.parse("{name: " + name + ", " + strings.Join(fields, " ") + "}")
}

// spec SERVICE FIELD: VALUE, ... replaces the spec of a Service, except for the
// addresses.
func (s *story) spec(name string, fields ...string) {
	old := s.service(name)
	var spec map[string]any
	must.NoError(s.t, yaml.Unmarshal([]byte("{"+strings.Join(fields, " ")+"}"), &spec))
	text, err := yaml.Marshal(map[string]any{"name": old.Name, "spec": spec, "protocols": old.Protocols})
	must.NoError(s.t, err)
	s.serve(string(text))
}

// label replaces the labels of a node.
func (s *story) label(node string, pairs ...string) {
	labels := map[string]string{}
	for _, arg := range pairs {
		key, value, _ := strings.Cut(arg, "=")
		labels[key] = value
	}
	s.writeNode(s.node(node), labels)
	s.settle()
}

// endpoints replaces the endpoints of SERVICE[,SERVICE...].
func (s *story) endpoints(names string, endpoints ...string) {
	s.setEndpoints(strings.Join(endpoints, " "), strings.Split(names, ",")...)
}

// avoid names the endpoints of a Service that node1 ejects, which is not in the
// API.
func (s *story) avoid(name string, pods ...string) { s.service(name).avoided = pods }

// removeInterface removes an interface that a place has.
func (s *story) removeInterface(node, name string) {
	must.NoError(s.t, s.node(node).RemoveInterface(name))
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
				must.NoError(c.t, c.pods[from].ReplaceLinkRoute(single(addr)))
			}
		}
	}
	for _, name := range []string{"net.bridge.bridge-nf-call-iptables", "net.bridge.bridge-nf-call-ip6tables"} {
		if err := c.Node1.SetSysctl(name, "1"); err != nil {
			c.t.Fatalf("sysctl of br_netfilter: %v", err)
		}
	}
}

// nodePorts PLACE... but not PLACE... checks the NodePorts of the Services web,
// none and local at open places of node1, and the servers of the node at closed
// ones.
func (s *story) nodePorts(places ...string) {
	var todo checks
	expect := func(name, line string) { todo = append(todo, s.checks(s.service(name), line)...) }
	open := true
	for _, place := range places {
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
	todo.run(s.t)
}
