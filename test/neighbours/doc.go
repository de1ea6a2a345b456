// Package neighbours tests that the proxy lives beside other programs on a
// node: firewalls, network plugins, scripts and tools that change packet
// filter rules, connection tracking, or the proxy's own tables.
//
// Each test runs the real program of Debian in the network namespace of a node,
// in a root file system of its own (see setup), beside the real proxy. After
// each step of the program, connections to Services succeed, or the command
// `nftproxy doctor` names the rule that blocks them. The start and the end of
// the proxy and --cleanup must not change the rules of the program.
//
// The results are the table in docs/neighbours.md. The tests fail if it differs
// from what they observed; -update writes it.
package neighbours
