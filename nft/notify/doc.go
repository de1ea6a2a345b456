// Package notify receives what nf_tables reports without a request: who commits
// transactions ([Monitor]), and which rules traced packets match ([Tracer]).
//
// It does not read or change the ruleset: see package nft.
package notify

import (
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// receiveBuffer is the size of the receive buffer of a socket.
const receiveBuffer = 8 << 20

// open opens a socket in the network namespace of the calling thread.
func open() (*nfnetlink.Socket, error) {
	return nfnetlink.Open(unix.NETLINK_NETFILTER, receiveBuffer)
}

// messageType returns the type of a message of nf_tables.
func messageType(typ uint16) uint16 { return unix.NFNL_SUBSYS_NFTABLES<<8 | typ }
