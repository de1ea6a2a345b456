// Package apiserver tests the proxy with a real API server: etcd,
// kube-apiserver and kubectl of the Kubernetes version that binaries/go.mod
// names, in network namespaces of a lab, see packages cluster and lab.
//
//	client    control-plane       nodes node1 and node2, of the lab
//	             │ pod of node2    pods a1, a2 on node1; b1, b2 on node2
//	             └ kube-apiserver  the subject: a proxy on node1
//
// The subject runs with the privileges of deploy/ and nothing else. SUBJECT in
// the environment chooses it: nftproxy (default), or kube-proxy, Kubernetes'
// own. That tests pass with both shows that they test what a proxy is to do. A
// test that asks for more than kube-proxy does says so.
//
//	make test-apiserver
//	make test-apiserver SUBJECT=kube-proxy
//
// TestTakeover swaps the subject with kube-proxy, or with the program that OTHER
// names by an absolute path, such as an earlier build:
//
//	cd test/apiserver && OTHER=/tmp/kube-proxy go test -run TestTakeover -v -attempts 400
//
// testdata/kube-proxy-VERSION is what kube-proxy shows of itself: flags,
// metrics, answers of its servers. `go test -run TestContract -record` writes
// it anew.
package apiserver
