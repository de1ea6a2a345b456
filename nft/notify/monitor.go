package notify

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Monitor identifies the processes that commit transactions in a network
// namespace. It has no cost while Listen is not running.
type Monitor struct{ socket *nfnetlink.Socket }

// Committer is a process that committed a transaction.
type Committer struct {
	// Port is the netlink port from which the transaction was sent (see
	// nft.Conn.Port).
	Port uint32
	// PID is the process id in the initial PID namespace.
	PID int
	// Name is the name of the process (comm), at most 15 bytes.
	Name string
}

// OpenMonitor opens a Monitor in the network namespace of the calling thread.
func OpenMonitor() (*Monitor, error) {
	s, err := open()
	if err != nil {
		return nil, err
	}
	err = unix.SetsockoptSockFprog(s.FD, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, onlyNewGen())
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("attach filter to netlink socket: %w", err)
	}
	return &Monitor{s}, nil
}

// onlyNewGen returns a socket filter that passes the message at the end of
// each transaction, and drops the messages about its changes.
func onlyNewGen() *unix.SockFprog {
	var typ [2]byte
	binary.NativeEndian.PutUint16(typ[:], messageType(unix.NFT_MSG_NEWGEN))
	const all = 0xffff
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: nfnetlink.TypeAt},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(binary.BigEndian.Uint16(typ[:])), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: all},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	return &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
}

// Close closes the monitor.
func (m *Monitor) Close() error { return m.socket.Close() }

// Listen returns the processes that commit transactions during d, each once.
// While it runs, transactions of all programs are slower because the kernel
// builds a message about each change.
func (m *Monitor) Listen(d time.Duration) ([]Committer, error) {
	const group = unix.NFNLGRP_NFTABLES
	if err := unix.SetsockoptInt(m.socket.FD, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group); err != nil {
		return nil, fmt.Errorf("listen to nf_tables: %w", err)
	}
	defer unix.SetsockoptInt(m.socket.FD, unix.SOL_NETLINK, unix.NETLINK_DROP_MEMBERSHIP, group)
	var found []Committer
	for end := time.Now().Add(d); ; {
		left := time.Until(end)
		if left <= 0 {
			return found, nil
		}
		msg, err := m.socket.Wait(left)
		if err != nil {
			return found, fmt.Errorf("listen to nf_tables: %w", err)
		}
		if c, ok := parseCommitter(msg); ok && !slices.Contains(found, c) {
			found = append(found, c)
		}
	}
}

// parseCommitter parses the message at the end of a transaction.
func parseCommitter(msg nfnetlink.Message) (c Committer, ok bool) {
	if len(msg) < nfnetlink.HeaderLen || msg.Type() != messageType(unix.NFT_MSG_NEWGEN) {
		return c, false
	}
	return Committer{
		Port: msg.Port(),
		PID:  int(nfnetlink.Uint32(nfnetlink.Attr(msg.Attributes(), unix.NFTA_GEN_PROC_PID))),
		Name: unix.ByteSliceToString(nfnetlink.Attr(msg.Attributes(), unix.NFTA_GEN_PROC_NAME)),
	}, true
}
