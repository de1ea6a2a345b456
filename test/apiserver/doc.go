// Package apiserver tests the proxy with a real API server: etcd,
// kube-apiserver and kubectl of the Kubernetes version in binaries/go.mod, in
// network namespaces of a lab. See packages cluster and lab.
//
//	client    control-plane       nodes node1 and node2, of the lab
//	             │ pod of node2    pods a1, a2 on node1; b1, b2 on node2
//	             └ kube-apiserver  the subject: a proxy on node1
//
// The subject runs with the privileges of deploy/ only. The environment
// variable SUBJECT selects it: nftproxy (default), Kubernetes' own kube-proxy,
// or a path (see test/conformance). A test that passes with both tests the
// behaviour of any service proxy. Comments name requirements that kube-proxy
// does not meet.
//
//	make test-apiserver
//	make test-apiserver SUBJECT=kube-proxy
//
// TestTakeover swaps the subject with kube-proxy, or with the program whose
// absolute path is in the environment variable OTHER, such as an earlier
// build:
//
//	cd test/apiserver && OTHER=/tmp/kube-proxy go test -run TestTakeover -v -attempts 400
//
// testdata/kube-proxy-VERSION has the recorded flags, metrics and HTTP
// answers of kube-proxy. `go test -run TestContract -record` rewrites it.
package apiserver
