// Command kubectl-nftproxy is a plugin of kubectl. It finds the pods of
// nftproxy and runs the command nftproxy in them, on one node or on several:
//
//	kubectl nftproxy status
//	kubectl nftproxy explain 10.96.0.10:80 --node worker-1
//
// It runs kubectl to list the pods and to run commands in them, so that it
// connects to the cluster as kubectl does, with its credential plugins. It
// knows few of the verbs of nftproxy, and none of their flags: it passes them
// on, and the nftproxy in the pod interprets and completes them.
//
// Under the name kubectl_complete-nftproxy it is the completion that kubectl
// calls.
package main
