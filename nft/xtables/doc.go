// Package xtables reads and changes the tables of iptables-legacy, which the
// kernel keeps apart from nf_tables. It runs no iptables program: it uses the
// socket options that these programs use.
//
// The kernel cannot delete a single rule of such a table. A program reads a
// whole table and replaces it atomically. [Delete] writes the bytes that it
// read, without the deleted entries, and adapts the offsets. It does not
// interpret matches and targets: the kernel accepts their data as it returned
// it, as it does for iptables.
//
// As with every change by iptables, matches with unnamed state (limit, quota,
// statistic) start again, and matches with named state (recent, hashlimit)
// keep it. Rule counters are kept: the kernel returns the final counters of
// the old table, and Delete adds them to the new one.
//
// iptables programs hold the lock /run/xtables.lock while they read and
// replace a table. Delete takes it as well, and waits up to 5 s for it. In a
// container this requires a mount of the host's file. Without the lock, the
// kernel still refuses the replacement if the number of entries has changed
// since the read; Delete then reads the table again. One race remains: another
// program changes a rule, but not the number of rules, within these
// milliseconds.
//
// The format of the entries is the format of 64-bit programs on 64-bit
// kernels. On others, Delete returns an error.
//
// [Table.Rules] returns rules as expressions of nf_tables, so that one
// evaluator serves both.
package xtables
