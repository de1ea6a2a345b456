// Command conformance runs the tests of behaviour that do not depend on the
// implementation of a service proxy against a program with kube-proxy's flags,
// with a real API server and packets between network namespaces.
//
//	conformance --proxy=PATH ─► go test, with SUBJECT=PATH ─► table, JUnit XML
//	                             │ test/packet
//	                             │ test/apiserver
//	                             └ test/apiserver/differential
//
// A case is a test without subtests. The expected outcome is the one of the
// Kubernetes API. references.yaml lists the cases in which kube-proxy has
// another one, with the reason: a program may fail these as kube-proxy does.
//
// The command owns the list of features, the references and the report. The
// cases are described in the tests. docs/conformance.md has results.
package main
