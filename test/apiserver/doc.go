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
// Most tests are the scripts of testdata/scripts: see package script. A step
// with => is repeated until it returns the words. The conditions nftproxy,
// kube-proxy and foreign (a path) select steps by the subject. These are the
// steps:
//
//	cluster                       the first step; "cluster without Nodes" has none
//	kubectl ARG…, apply FILE…     kubectl as administrator; $a1 is an address of a1
//	expose SERVICE POD…           creates testdata/service.yaml with endpoints
//	endpoints SERVICE POD…        sets endpoints; "changed 1h": ago, for metrics
//	delete SERVICE, many N        deletes one; creates more
//	apiserver kill|start          also "start other", "stop other": a second one
//	compact, network cut|mend     etcd, with later revisions; node1 and the API server
//	requests, requested any|list|refused RESOURCE…
//
//	start NAME FLAG…              starts a proxy, and waits for its first sync
//	launch NAME FLAG…             starts a proxy: see proxySteps for the names
//	crash, terminate, restart, cleanup NAME; exit NAME => CODE; runs
//	refuse CODE FLAG…             a start that must fail; returns the message
//	get PATH => STATUS, unhealthy, log TEXT, errors NAME
//	metric NAME => VALUE, between LEAST MOST NAME
//	wrap COMMAND…                 runs the proxies that start next
//	expand FILE TO, volume FILE TO, hold ADDRESS…, release
//
//	served SERVICE => POD…        from a1 and node1 to ClusterIPs, and from the
//	                              client to NodePorts; none: an attempt fails
//	connect FROM -> SERVICE KIND => POD…
//	source FROM -> SERVICE KIND => NAME, whose address the endpoints see
//	reached, chosen, sticks SERVICE; flows SERVICE FROM TO, of UDP
//	stream SERVICE…, pass, phase TEXT, unbroken: connections meanwhile
//
//	on NODE PROGRAM…, tables
//	monitor, written SERVICE POD, unwritten SERVICE: changes of tables
//	take, return                  another program owns the tables
//	leftovers VARIANT             what kube-proxy's iptables mode left
//	root deploy|kubeadm, read-root FILE, accepted preset|kustomization NAME
//	kubelet NODE FOLDER, kill-kubelet NODE, program FOLDER SCRIPT
//	user COMMAND…, complete ARG…, terminal NODE, doctor CHECK…
//
// The script takeover swaps the subject with kube-proxy, or with the program
// whose absolute path is in the environment variable OTHER, such as an earlier
// build:
//
//	cd test/apiserver && OTHER=/tmp/kube-proxy go test -run 'TestScripts/takeover' -v -attempts 400
//
// testdata/kube-proxy-VERSION has the recorded flags, metrics and HTTP
// answers of kube-proxy. `go test -run TestContract -record` rewrites it.
package apiserver
