// Package answer computes the answers of a running proxy to the command
// nftproxy: its status, the state of Services, the difference between its
// tables and the kernel, and the fate that it intends for a packet.
//
// An answer is computed when a question arrives, by queries that run between
// the syncs of the proxy (proxier.Proxier.Query).
package answer
