// Package ruleset computes the nftables table "kube-proxy" of one address
// family. It performs no I/O.
//
// The table consists of a program and of rows. The program is a number of sets
// and chains that depend on the node and its configuration only (see
// Ruleset.MakeProgram). The rows are elements of the sets. They depend on
// Services and endpoints: a Plan contains the frontends and the endpoints of
// one service port, and Ruleset.Rows returns the rows of a Plan. For example, a
// Service default/web with ClusterIP 10.96.0.10, port 80 and three endpoints is
//
//	set cluster-ips        10.96.0.10
//	map service-classes    10.96.0.10 . tcp . 80 comment "default/web:http" : 0:3
//	map service-targets    10.96.0.10 . tcp . 80 . 0:1 : 10.244.1.5 . 8080
//	                       10.96.0.10 . tcp . 80 . 0:2 : 10.244.2.5 . 8080
//	                       10.96.0.10 . tcp . 80 . 0:3 : 10.244.3.5 . 8080
//
// 0:3 is the Class of the frontend. A row of the map class-chains leads from it
// to the chain balance-3, a balancer, which all service ports with three
// endpoints share. It passes the index of a row to the chain pick in the
// priority of the packet:
//
//	meta priority set numgen random mod 3 offset 1 goto pick
//	dnat ip to ip daddr . meta l4proto . th dport . meta priority map @service-targets
//
// Only two kinds of chains depend on Services: balancers, one for each number
// of endpoints that was in use, and the chains of service ports with session
// affinity or with a number.
package ruleset
