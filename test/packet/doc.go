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
// Most tests are scripts in testdata/scripts. Its README describes connections
// and objects; make steps PACKAGE=test/packet lists the steps.
// An expectation (type expectation) is checked over all protocols and families
// of the Service, and must agree with package explain. TestBreaks breaks
// clusters, and runs the commands of an operator.
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
