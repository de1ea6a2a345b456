// Package trace follows real packets to addresses of Services through the rules
// of the kernel, and returns the fate of each.
//
// It adds a table of its own for each address family. The rules of this table
// select the first packets of connections, at a limited rate, and make the
// kernel report each rule that these packets match afterwards, in all tables
// (nftrace). The table has no other effect on packets. The kernel deletes it
// when the process ends, however it ends.
//
// The package decides what happened to a packet from the reported rules. If no
// chain reports a packet any more, or if it passed all of them, package route
// finds out whether the kernel delivers it: blame names one cause.
// Package explain supplies the texts of rules, and the reason in terms of
// Kubernetes: it explains the same packet, and its outcome must be the same.
package trace
