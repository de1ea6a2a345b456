package packet

import (
	"context"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// TestConditions shows which endpoints get connections, by their conditions.
func TestConditions(t *testing.T) {
	t.Parallel()
	const external = "type: NodePort\nexternalTrafficPolicy: Local"
	const internal = "internalTrafficPolicy: Local"
	newCluster(t).runScenarios(t, []scenario{
		{
			service: service{name: "terminating-one", endpoints: "a1 b1:terminating b2"},
			expect:  `pod1 pod2 node1 -> clusterIP => a1 b2 as itself`,
		},
		{
			service: service{name: "terminating-all", endpoints: "a1:terminating b1:terminating b2:unready"},
			expect:  `pod1 pod2 node1 -> clusterIP => a1 b1 as itself`,
		},
		{
			service: service{name: "stopped", endpoints: "a1:stopped b1:terminating"},
			expect:  `pod1 pod2 -> clusterIP => b1 as itself`,
		},
		{
			service: service{name: "unready", endpoints: "a1:unready b1"},
			expect:  `pod1 pod2 -> clusterIP => b1 as itself`,
		},
		{
			service: service{name: "none", endpoints: "a1:stopped b1:unready"},
			expect:  `client pod1 pod2 node1 -> clusterIP => refused`,
		},
		{
			service: service{name: "published", spec: "publishNotReadyAddresses: true", endpoints: "a1:published b1"},
			expect:  `pod1 pod2 -> clusterIP => a1 b1 as itself`,
		},
		{
			// node1 has a terminating endpoint, node2 a ready one.
			service: service{
				name: "external-fallback", spec: external, endpoints: "a1:terminating a2:unready b1 b2:terminating",
			},
			expect: `
				client -> nodePort@node1 => a1 as itself
				client -> nodePort@node2 => b1 as itself
				pod1 -> nodePort@node1 clusterIP => b1 as itself
				node1 -> nodePort@node1 => b1 as node1
			`,
		},
		{
			service: service{name: "external-far", spec: external, endpoints: "a1:stopped b1:terminating"},
			expect: `
				client -> nodePort@node1 => dropped
				client -> nodePort@node2 => b1 as itself
				pod1 -> nodePort@node1 => b1 as itself
			`,
		},
		{
			service: service{name: "external-none", spec: external, endpoints: "a1:stopped b1:unready"},
			expect:  `client pod1 node1 -> nodePort@node1 nodePort@node2 => refused`,
		},
		{
			service: service{name: "internal-fallback", spec: internal, endpoints: "a1:terminating a2:stopped b1"},
			expect: `
				pod1 node1 -> clusterIP => a1 as itself
				pod2 node2 -> clusterIP => b1 as itself
			`,
		},
		{
			service: service{name: "internal-far", spec: internal, endpoints: "a1:unready b1:terminating"},
			expect: `
				pod1 node1 -> clusterIP => dropped
				pod2 node2 -> clusterIP => b1 as itself
			`,
		},
	})
}

// TestSlices shows that a service can have several EndpointSlices.
func TestSlices(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	// Each of these ports is open in one pod.
	labtest.Serve(t, spareTarget, c.pods["a1"].Namespace)
	labtest.Serve(t, spareTarget+1, c.pods["b1"].Namespace)
	c.runScenarios(t, []scenario{
		{
			service: service{name: "several", slices: []slice{{endpoints: "a1"}, {endpoints: ""},
				{endpoints: "b1 b2"}}},
			expect: `pod1 pod2 -> clusterIP => a1 b1 b2 as itself`,
		},
		{
			service: service{name: "twice", slices: []slice{{endpoints: "a1 b1"}, {endpoints: "b1"}}},
			expect:  `pod1 pod2 -> clusterIP => a1 b1 as itself`,
		},
		{
			// The better of two conditions applies.
			service: service{
				name: "conditions", slices: []slice{{endpoints: "a1:terminating b1"}, {endpoints: "a1 b1:stopped"}},
			},
			expect: `pod1 pod2 -> clusterIP => a1 b1 as itself`,
		},
		{
			// A rolling update can change the number of a named port.
			service: service{
				name: "targets", spec: "type: NodePort",
				slices: []slice{{endpoints: "a1", target: spareTarget}, {endpoints: "b1", target: spareTarget + 1}},
			},
			expect: `
				pod1 pod2 -> clusterIP => a1 b1 as itself
				client -> nodePort@node1 => a1 b1 as node1
			`,
		},
	})
}

// TestEndpointMovesToAnotherSlice shows that an endpoint stays in use while
// it moves to another slice, whichever slice changes first.
func TestEndpointMovesToAnotherSlice(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := service{name: "moving"}
	check := func(expect string) {
		t.Helper()
		c.serve("moving", &s)
		c.checks(&s, expect).run(t)
	}
	for _, step := range []struct {
		slices []slice
		expect string
	}{
		{[]slice{{endpoints: "a1 a2"}, {endpoints: "b1"}}, `pod1 -> clusterIP => a1 a2 b1 as itself`},
		{[]slice{{endpoints: "a1"}, {endpoints: "b1 a2"}}, `pod1 -> clusterIP => a1 a2 b1 as itself`},
		{[]slice{{endpoints: "a1"}, {endpoints: "a2"}}, `pod1 -> clusterIP => a1 a2 as itself`},
		{[]slice{{endpoints: "a1 a2"}, {endpoints: "a2"}}, `pod1 -> clusterIP => a1 a2 as itself`},
		{[]slice{{endpoints: "a1 a2"}}, `pod1 -> clusterIP => a1 a2 as itself`},
		{[]slice{{endpoints: "a1"}, {endpoints: "a2:terminating"}}, `pod1 -> clusterIP => a1 as itself`},
		{nil, `pod1 -> clusterIP => refused`},
	} {
		s.slices = step.slices
		check(step.expect)
	}
}

// TestEstablishedConnections shows that an established connection works while
// its endpoint terminates, and after the endpoint or the service is removed.
func TestEstablishedConnections(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	s := service{name: "web", spec: "type: NodePort", protocols: "TCP", endpoints: "a1"}
	c.serve("web", &s)
	var conns []*lab.Conn
	for _, from := range []string{"client", "pod1", "pod2", "node1"} {
		for _, to := range []string{"clusterIP", "nodePort@node1"} {
			for _, f := range bothFamilies() {
				at := c.origin(from).Namespace
				conn, result := lab.Open(t.Context(), at, "tcp", c.destination(&s, to, f), lab.ProbeOptions{})
				if conn == nil {
					t.Fatalf("%s -> %s: %v", from, to, result)
				}
				defer conn.Close()
				conns = append(conns, conn)
			}
		}
	}
	alive := func(when string) {
		t.Helper()
		for _, conn := range conns {
			ctx, cancel := context.WithTimeout(t.Context(), answerTimeout)
			if result := conn.Ask(ctx); result.Outcome != lab.Answered {
				t.Errorf("%v -> %v, %s: got %v", conn.LocalAddr(), conn.RemoteAddr(), when, result)
			}
			cancel()
		}
	}
	for _, endpoints := range []string{"a1:terminating b1", "a1:stopped b1", "b1", ""} {
		s.slices = []slice{{endpoints: endpoints}}
		c.serve("web", &s)
		alive("endpoints " + endpoints)
	}
	c.remove("web")
	c.settle()
	alive("service deleted")
}
