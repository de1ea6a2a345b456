// Package nfnetlink has the transport of netlink that nf_tables and connection
// tracking share: a socket, messages, attributes, and the numbers and names of
// address families and protocols. The meaning of messages and attributes is up
// to the caller.
package nfnetlink
