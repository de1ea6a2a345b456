package main

import (
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/test/lab"
)

// forgetFlows removes all flows of a namespace from connection tracking.
func forgetFlows(at *lab.Namespace) error {
	const deleteFlow = 2 // IPCTNL_MSG_CT_DELETE: without a tuple, all of them
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: at.Fd()})
	if err != nil {
		return fmt.Errorf("connection tracking: %w", err)
	}
	defer conn.Close()
	_, err = conn.Execute(netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_CTNETLINK<<8 | deleteFlow), Flags: netlink.Request | netlink.Acknowledge},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0},
	})
	if err != nil {
		return fmt.Errorf("remove flows: %w", err)
	}
	return nil
}
