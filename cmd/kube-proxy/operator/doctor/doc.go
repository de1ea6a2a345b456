// Package doctor checks a node for conditions that make Services fail: the
// kernel, its settings, and what other programs have configured in the network
// namespace of the calling thread.
//
// Each check returns a finding with its reason and, unless all is well, a
// remedy. docs/checks.md has a section for each check. Most checks need only
// the kernel; those that need a running proxy are skipped without one. The
// checks change nothing. One of them sends a transaction that the kernel
// aborts.
package doctor
