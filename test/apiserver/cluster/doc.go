// Package cluster runs a Kubernetes API server for tests and benchmarks: real
// etcd and kube-apiserver programs in a network namespace of package lab.
//
//	          namespace (usually a pod of the lab)
//	┌───────────────────────────────────────────────┐
//	│ etcd 127.0.0.1:2379 ◄── kube-apiserver  :6443 │ ◄── nodes, through the lab
//	│                     ◄── another one     :6444 │ ◄── Client, kubectl
//	└───────────────────────────────────────────────┘
//
// The API server has certificates of its own authority, issues tokens of
// service accounts, and authorizes by RBAC alone: who is not in the group
// system:masters may do what roles say and nothing else. There are no
// controllers: whoever wants EndpointSlices, Nodes or service accounts creates
// them. The Service default/kubernetes has no endpoints, so that nothing in the
// cluster changes when an API server comes or goes.
//
// The package owns the processes, their files and their clients. It knows
// nothing of service proxies. Breaking the network is the lab's affair, and
// [Cluster.Isolate] does it for a namespace as a whole.
package cluster
