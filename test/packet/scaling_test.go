package packet

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
)

// TestScaling shows that no connection attempt fails while endpoints are
// added, replaced and removed. As in a cluster, an endpoint terminates before
// it is removed, and its server runs as long as a proxy may use it. So no
// connection is reset because its endpoint is gone.
func TestScaling(t *testing.T) {
	t.Parallel()
	var flags []string
	if subject() == "" { // other programs do not have this option
		flags = []string{resetStale}
	}
	c := newCluster(t, flags...)
	d := newDeployment(c, &service{name: "web", spec: "type: NodePort\nexternalIPs: {{.ExternalIPs}}"})
	const paths = `
		client -> nodePort@node1
		pod1 node1 -> clusterIP
		pod2 -> externalIP
	`
	for _, rollout := range []string{
		"a1, a1 b1, a1 b1 a2 b2, b1 a2 b2, a2 b2, b2",
		"b2, a1, b1 a2, a1 b2, a1 b1 b2, a2, a1 a2 b1 b2 pod1, pod2",
	} {
		steps := strings.Split(rollout, ", ")
		d.scale(t, steps[0])
		w := c.startTraffic(t, d.service, paths, answerTimeout)
		for _, endpoints := range steps[1:] {
			w.pass(3)
			d.scale(t, endpoints)
			w.pass(3) // later attempts do not use terminating endpoints
			d.end()
			w.pass(3)
		}
		w.mustNotFail()
		d.scale(t, "")
		d.end()
		c.checks(d.service, "client pod1 pod2 node1 -> clusterIP externalIP nodePort@node1 => refused").run(t)
		d.scale(t, "a1 b2")
		c.checks(d.service, "pod1 pod2 -> clusterIP => a1 b2 as itself").run(t)
	}
	if subject() != "" {
		return // it may lack these metrics
	}
	eventually(t, "endpoints that are gone", func() error {
		if c.metric(t, "nftproxy_endpoints_gone_total") == 0 {
			return errors.New("got none")
		}
		return nil
	})
	if n := c.resets(t); n != 0 {
		t.Errorf("got %d resets, want 0", n)
	}
}

// deployment is a service whose endpoints are started and stopped.
type deployment struct {
	*cluster
	service *service
	servers map[string]servers // by pod
	wanted  []string           // pods
}

type servers struct{ tcp, udp *lab.Server }

func newDeployment(c *cluster, s *service) *deployment {
	return &deployment{cluster: c, service: s, servers: make(map[string]servers)}
}

// scale starts servers in pods and then makes these pods the ready endpoints.
// Earlier endpoints terminate.
func (d *deployment) scale(t *testing.T, endpoints string) {
	t.Helper()
	d.wanted = strings.Fields(endpoints)
	for _, name := range d.wanted {
		if _, running := d.servers[name]; running {
			continue
		}
		tcp, err := d.pods[name].ServeTCP(spareTarget)
		if err != nil {
			t.Fatal(err)
		}
		udp, err := d.pods[name].ServeUDP(spareTarget)
		if err != nil {
			t.Fatal(err)
		}
		d.servers[name] = servers{tcp, udp}
	}
	terminating := ""
	for _, name := range slices.Sorted(maps.Keys(d.servers)) {
		if !slices.Contains(d.wanted, name) {
			terminating += " " + name + ":terminating"
		}
	}
	d.publish(endpoints + terminating)
}

// end removes terminating endpoints and ends their servers.
func (d *deployment) end() {
	d.publish(strings.Join(d.wanted, " "))
	for name, s := range d.servers {
		if slices.Contains(d.wanted, name) {
			continue
		}
		s.tcp.Close()
		s.udp.Close()
		delete(d.servers, name)
	}
}

func (d *deployment) publish(endpoints string) {
	d.t.Helper()
	d.service.slices = []slice{{endpoints: endpoints, target: spareTarget}}
	d.serve(d.service.name, d.service)
}
