// Package observe looks at what a service proxy does to a machine, from outside of it:
//
//	Prober    is a row, are all rows, in the table of the namespace
//	Listener  the kernel's own notification of a committed change
//	Trace     what the processes send to the kernel by netlink, and how long the kernel is at it
//	Group     CPU time and memory of a process and its children
//	Machine   slab memory, what the kernel's log says, whether anything else runs
//
// All of them treat every proxy alike. They need root, cgroup v2, and for Trace a kernel with syscall tracepoints.
//
// The package knows the few names that kube-proxy's nftables mode and nftproxy have in common: the table kube-proxy, its base chain
// nat-prerouting and its map service-ips.
package observe
