// Package differential compares nftproxy with kube-proxy. Random clusters, one
// per seed, change step by step. Both proxies serve them side by side from one
// API server, and get the same probes.
//
//	              kube-apiserver
//	               │          │ relay
//	lab of kube-proxy        lab of nftproxy       equal names and addresses
//	  node1 ◄─ proxy           node1 ◄─ proxy
//	  pods, node2, client      pods, node2, client
//
// Before the probes, rules and rows of nftproxy are damaged, and it repairs
// them.
//
// A result is the set of outcomes of many attempts: which endpoint answers,
// which source address it sees, refusal, no answer. A result that differs
// several times in a row is a difference. It is reported with the objects that
// cause it, unless the list of known differences (known_test.go) explains it.
//
//	make differential SEEDS=100
//	make differential SEED=17
//
// The package owns the probes and their comparison. Package random generates
// the clusters. Expectations about single features are in test/packet.
package differential
