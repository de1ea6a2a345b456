package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Monitor finds out which processes commit to nf_tables in the network namespace
// in which it was opened. It costs nothing until Listen is called.
type Monitor struct{ fd int }

// Committer is a process that committed a transaction.
type Committer struct {
	// Port is the netlink port that the transaction came from (see Conn.Port).
	Port uint32
	// PID is the id of the process in the initial PID namespace.
	PID int
	// Name is the name of the process, of at most 15 bytes (comm).
	Name string
}

// OpenMonitor opens a Monitor in the network namespace of the calling thread.
func OpenMonitor() (*Monitor, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	m := &Monitor{fd}
	if err := m.setUp(); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (m *Monitor) setUp() error {
	if err := unix.Bind(m.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("bind netlink socket: %w", err)
	}
	if err := unix.SetsockoptSockFprog(m.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, onlyNewGen()); err != nil {
		return fmt.Errorf("filter messages of netlink socket: %w", err)
	}
	return nil
}

// onlyNewGen returns a socket filter that passes the message at the end of each
// transaction, and none about what the transaction changed.
func onlyNewGen() *unix.SockFprog {
	var typ [2]byte
	binary.NativeEndian.PutUint16(typ[:], unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN)
	const typeOffset, all = 4, 0xffff
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, K: typeOffset},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(binary.BigEndian.Uint16(typ[:])), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: all},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	return &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
}

// Close closes the monitor.
func (m *Monitor) Close() error { return unix.Close(m.fd) }

// Listen returns the processes that commit transactions during d, each once. The
// kernel builds messages about every change for a listener, which makes
// transactions of all programs slower meanwhile.
func (m *Monitor) Listen(d time.Duration) ([]Committer, error) {
	if err := unix.SetsockoptInt(m.fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, unix.NFNLGRP_NFTABLES); err != nil {
		return nil, fmt.Errorf("listen to nf_tables: %w", err)
	}
	defer unix.SetsockoptInt(m.fd, unix.SOL_NETLINK, unix.NETLINK_DROP_MEMBERSHIP, unix.NFNLGRP_NFTABLES)
	var found []Committer
	seen := make(map[Committer]bool)
	buf := make([]byte, receiveSize)
	for end := time.Now().Add(d); ; {
		left := time.Until(end)
		if left <= 0 {
			return found, nil
		}
		timeout := unix.NsecToTimeval(max(left, time.Millisecond).Nanoseconds())
		if err := unix.SetsockoptTimeval(m.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
			return found, fmt.Errorf("listen to nf_tables: %w", err)
		}
		n, _, err := unix.Recvfrom(m.fd, buf, 0)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOBUFS):
			continue
		case err != nil:
			return found, fmt.Errorf("listen to nf_tables: %w", err)
		}
		if c, ok := parseCommitter(buf[:n]); ok && !seen[c] {
			seen[c] = true
			found = append(found, c)
		}
	}
}

// parseCommitter parses the message at the end of a transaction.
func parseCommitter(msg []byte) (c Committer, ok bool) {
	const header = nlmsgHeaderLen + nfgenmsgLen
	if len(msg) < header || binary.NativeEndian.Uint16(msg[4:]) != unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN {
		return c, false
	}
	c.Port = binary.NativeEndian.Uint32(msg[12:])
	attrs(msg[header:], func(typ uint16, value []byte) {
		switch typ {
		case unix.NFTA_GEN_PROC_PID:
			c.PID = int(be32(value))
		case unix.NFTA_GEN_PROC_NAME:
			c.Name = cString(value)
		}
	})
	return c, true
}
