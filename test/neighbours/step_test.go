package neighbours

import (
	"context"
	_ "embed"
	"net/netip"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/frontend"
)

// scenario is a program beside the proxy.
type scenario struct {
	Name      string // of the program in the documentation
	Packages  []string
	Functions string // of the shell, for all scripts
	Prepare   string // a script that starts the program before the proxy
	Tables    string // begins the names of rules
	Steps     []step
}

// step is what the program does, and the result.
type step struct {
	Does   string // in the documentation
	Script string // that runs in the Debian system
	Go     string // name of a function that runs after the script
	// BlockedBy is a part of the name of the rule that blocks Services, "" if
	// they work.
	BlockedBy string
}

//go:embed testdata/scenarios.yaml
var scenariosYAML []byte

// scenarios returns all programs, in the order of the documentation.
var scenarios = sync.OnceValue(func() (all []scenario) {
	if err := yaml.UnmarshalStrict(scenariosYAML, &all); err != nil {
		panic(err) // the text is a constant
	}
	for _, s := range all {
		for i := range s.Steps {
			if s.Steps[i].BlockedBy != "" {
				s.Steps[i].BlockedBy = s.Tables + s.Steps[i].BlockedBy
			}
		}
	}
	return all
})

func (s *step) result() string {
	if s.BlockedBy == "" {
		return "work"
	}
	return "fail; `doctor` names " + s.BlockedBy
}

// run runs a scenario: start, steps, end and cleanup.
func (s *scenario) run(t *testing.T) {
	t.Parallel()
	n := newNode(t, "bookworm")
	n.mustRun(t, s.Functions+s.Prepare)
	n.start()
	for _, step := range s.Steps {
		n.mustRun(t, s.Functions+step.Script)
		switch step.Go {
		case "addContainer":
			n.addContainer()
		case "removeContainer":
			n.probes = n.probes[:2*probesOfService] // the probes of the container are the last
		case "flushConntrack":
			n.flushConntrack()
		}
		if step.BlockedBy == "" {
			n.works(s.Name + ": " + step.Does)
		} else {
			n.blocked(s.Name+": "+step.Does, step.BlockedBy)
		}
	}
	n.stop()
	n.cleanUp()
}

func TestNeighbours(t *testing.T) {
	for _, s := range scenarios() {
		t.Run(s.Name, s.run)
	}
}

// addContainer serves the container on a bridge of the CNI plugins, which also
// has a port of the node.
func (n *node) addContainer() {
	const hostPort = 8089
	n.tables = nil
	n.serve("container", 30, netip.MustParseAddr("10.88.0.2"))
	to := netip.AddrPortFrom(n.at.IPv4, hostPort)
	n.probes = append(n.probes, probe{"client → hostPort", n.lab.Client, frontend.Frontend{Network: "tcp", To: to}})
}

// probesOfService is the number of probes of a dual-stack Service: from three
// clients to its ClusterIPs, and from one to its NodePort, by two protocols.
const probesOfService = 2 * 4 * 2

// flushConntrack deletes all entries of connection tracking while a connection
// to a Service is open. The next packet of the connection is translated again.
func (n *node) flushConntrack() {
	p := n.probes[0]
	conn, r := lab.Open(n.t.Context(), p.from, p.to.Network, p.to.To, lab.ProbeOptions{})
	if conn == nil {
		n.t.Fatalf("%s: %v", p.name, r)
	}
	defer conn.Close()
	n.mustRun(n.t, "conntrack -F")
	ctx, cancel := context.WithTimeout(n.t.Context(), 5*time.Second)
	defer cancel()
	if r := conn.Ask(ctx); r.Outcome != lab.Answered {
		n.t.Errorf("%s, after the deletion: %v", p.name, r)
	}
}
