// Package stage runs the cluster that the tour is about: a lab of network namespaces, a pod for every endpoint of the
// manifests, and on each node kube-proxy as a process of its own, all of which read one folder of manifests.
//
// It owns what must be gone when the tour is over: processes, namespaces, the folder. Close takes them away. If the
// program is killed the kernel ends the processes, and the next stage of that name takes away the rest.
//
// It shows nothing and judges nothing.
package stage
