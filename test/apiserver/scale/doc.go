// Scale measures service proxies on a real API server, side by side: kube-proxy in nftables mode and nftproxy.
//
//	            network namespaces of the lab
//	┌──────────────────┐          ┌────────────────────────────────┐
//	│ etcd             │  watch   │ proxy ──netlink──► nf_tables   │
//	│ kube-apiserver   │◄─────────┤ (and its children)     │       │
//	│        ▲         │◄─────────┤ bare watch   Listener ◄┘       │
//	└────────┼─────────┘          └────────────────────────────────┘
//	     changes                     fresh for each cold start
//
// A change begins just before its request is sent to the API server, and ends when the kernel tells of the committed transaction that
// has it. The bare watch, in the proxy's namespace, tells when any proxy can know of it at the earliest. Starts end with the
// transaction after which all rows are there. Every proxy gets the same configuration file, kubeconfig and objects, one after the other.
//
// CPU time is that of the proxy's control group, with its children. What a proxy leaves to kernel threads, such as freeing what was
// deleted, is in nobody's account.
package main
