// Package ruleset computes the nftables table "kube-proxy" of one address
// family. It performs no I/O.
//
// The table has two parts. The program is a number of sets and chains that
// depend on the node and its configuration only (see Ruleset.MakeProgram). The
// rows are elements of the sets. They depend on Services and endpoints: a Plan
// contains the frontends and the endpoints of one service port, and
// Ruleset.Rows returns the rows of a Plan. For example, a Service default/web
// with ClusterIP 10.96.0.10, port 80 and three endpoints is
//
//	set cluster-ips             10.96.0.10
//	map service-ips             10.96.0.10 . tcp . 80 comment "default/web:http" : goto balance-3
//	map service-endpoints       10.96.0.10 . tcp . 80 . 0 : 10.244.1.5 . 8080
//	                            10.96.0.10 . tcp . 80 . 1 : 10.244.2.5 . 8080
//	                            10.96.0.10 . tcp . 80 . 2 : 10.244.3.5 . 8080
//
// The chain balance-3 is a balancer. It has one rule, which all service ports
// with three endpoints share:
//
//	dnat ip to ip daddr . meta l4proto . th dport . numgen random mod 3 map @service-endpoints
//
// Only two kinds of chains depend on Services: balancers, one for each number
// of endpoints in use, and the chains of service ports with session affinity.
package ruleset
