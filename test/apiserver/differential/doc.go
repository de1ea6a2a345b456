// Package differential compares nftproxy and kube-proxy with the oracle. Random
// clusters, one per seed, change step by step. Both proxies serve them side by
// side from one API server, and get the same probes.
//
//	              kube-apiserver
//	               │          │ relay
//	lab of kube-proxy        lab of nftproxy       equal names and addresses
//	  node1 ◄─ proxy           node1 ◄─ proxy
//	  pods, node2, client      pods, node2, client
//
// A result is the set of outcomes of many attempts: which endpoint answers,
// which source address it sees, refusal, no answer. The oracle (test/oracle)
// computes what is allowed. A result that is not, several times in a row, is a
// difference. It is reported with the objects that cause it. kube-proxy may
// differ if the list of known differences (known_test.go) explains it.
//
//	make differential SEEDS=100
//	make differential SEED=17
//
// The package owns the probes. Package random generates the clusters.
// Expectations about single features are in test/packet.
package differential
