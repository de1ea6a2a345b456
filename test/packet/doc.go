// Package packet tests with packets what the kube-proxy command does for
// Services.
//
// Each test creates a small cluster network out of network namespaces
// (package lab), runs the real command in both nodes, gives it manifests, and
// checks the outcome of connections: which endpoint answers, which source
// address it sees, and whether an attempt is refused or dropped. The command
// is the test program itself, started as a child process (TestMain).
//
//	script ─► YAML ─► kube-proxy in node1 and node2 ─► rules
//	    │                                                ▲
//	    └─► connect: from ─► address ─── packets ────────┘─► endpoints
//
// Most tests are scripts in testdata/scripts:
//
//	cluster --masquerade-all
//	apply web.yaml
//	connect web client pod1 -> clusterIP externalIP => a1 as node1, b1 as itself
//	endpoints web a1 b1:terminating
//	restart
//	connect web client -> nodePort@node1 => a1 as node1
//
// The first step, cluster, starts a cluster with flags besides the default
// ones. Node1 has the pods a1, a2 and pod1, node2 has b1, b2 and pod2, and the
// client is outside the cluster. An endpoint is a pod, with a condition such
// as terminating, which still serves, or stopped, which does not
// (cluster.endpoint).
//
// An expectation (type expectation) is checked over all protocols and families
// of the Service, and must agree with package explain. It is a step, or a line
// in the field expect of a Service (type service), which the step check reads.
//
// The steps, with the functions that describe them:
//
//   - the cluster: cluster, add, bridge, listen, sysctl, on PROGRAM, label,
//     remove-interface (story_test.go)
//   - objects: apply FILE, spec, endpoints, remove, absent, example; avoided for
//     ejected endpoints (story_test.go)
//   - proxies: terminate, kill, interrupt, signal, ended, start, restart, flags,
//     settle, cleanup (compare_test.go)
//   - connections: check, connect, nodeports, await STEP; open and ask for
//     connections that stay (heldSteps); choose, stay, leave and moved for the
//     endpoints of clients, loyal and spread for many connections
//     (choiceSteps); traffic and rollout for clients that connect all the time
//     (trafficSteps)
//   - tables: keep, same, like-new, chains (compare_test.go)
//   - reports: metric, refusals, health, log, flows (observationSteps), traced
//     and trace (traceSteps), tracing (tracingSteps)
//
// If the environment variable SUBJECT is the path of a program with the flags
// of kube-proxy, that program runs in the nodes instead, and gets the objects
// of the manifests from an API server. See test/conformance, which lists the
// tests that such a program can pass.
//
// The package owns the packet tests. It lists tables with the nft program;
// the content of tables is tested in package proxier.
//
// The tests need root, and Linux 5.10 or later with br_netfilter. They do not
// assert durations: they wait for an effect, with a deadline that suits slow
// emulated machines.
package packet
