// Package app runs the kube-proxy command.
//
// It owns the process: it connects a source of API objects to a
// [proxier.Proxier], serves health, metrics and the other status pages, sends
// events, and ends when the context or one of its tasks ends. It also owns
// the settings that are not rules: the kernel check, the sysctls of
// connection tracking, the OOM score and the garbage collector.
//
// It does not parse or validate flags and files (package config), and it does
// not decide which rules a Service needs (package proxier and below).
package app
