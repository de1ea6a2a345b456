// Package answer computes the answers of a running proxy to the command
// nftproxy: its status, the state of Services, the difference between its
// tables and the kernel, and the fate that it intends for a packet.
//
// Each question has a file of its own: its path in the protocol of package
// socket, the parameters of a query, and the method of Answers that computes
// the answer when a question arrives. The status is a copy that the proxy
// publishes after each sync, so it is also answered while a sync hangs. Other
// answers are computed between the syncs of the proxy (proxier.Proxier.Query),
// in steps of a few milliseconds.
//
// The structs table.ServiceView, table.Stats and ruleset.EndpointUse are what
// the socket transmits as JSON.
package answer
