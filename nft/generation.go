package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Generation returns the generation of the ruleset. Each transaction of any
// program in the network namespace increments it. It is never 0.
func (c *Conn) Generation() (uint32, error) {
	var gen uint32
	err := c.request(unix.NFT_MSG_GETGEN, 0, 0, nil, func(msg []byte) {
		gen = be32(attr(msg, unix.NFTA_GEN_ID))
	})
	if err == nil && gen == 0 {
		err = nfnetlink.ErrIncomplete
	}
	if err != nil {
		return 0, fmt.Errorf("read generation: %w", err)
	}
	return gen, nil
}

// NextGeneration returns the generation that follows gen. The largest number
// is followed by 1.
func NextGeneration(gen uint32) uint32 { return max(gen+1, 1) }

// snapshotAttempts is the number of attempts to read a snapshot while other
// programs commit.
const snapshotAttempts = 10

// Snapshot calls read, which calls methods of c that read the ruleset, and
// returns the generation to which all their results belong. If another
// program commits meanwhile, Snapshot calls read again. After several
// attempts it returns ErrGeneration.
func (c *Conn) Snapshot(read func() error) (generation uint32, err error) {
	if c.inSnapshot {
		return 0, read()
	}
	c.inSnapshot = true
	defer func() { c.inSnapshot = false }()
	for range snapshotAttempts {
		before, err := c.settle()
		if err == nil {
			err = read()
		}
		if errors.Is(err, ErrGeneration) {
			continue
		}
		if err != nil {
			return 0, err
		}
		after, err := c.Generation()
		if err != nil || after == before {
			return after, err
		}
	}
	return 0, ErrGeneration
}

// settle waits until no transaction is in progress and returns the generation
// at that time. It sends an empty transaction, which waits for the preceding
// one and does not increment the generation.
func (c *Conn) settle() (uint32, error) {
	for range snapshotAttempts {
		gen, err := c.Generation()
		if err != nil {
			return 0, err
		}
		b := NewBatch(&Table{})
		b.Expect(gen)
		switch err := c.apply(b); {
		case err == nil:
			return gen, nil
		case !errors.Is(err, ErrGeneration):
			// The caller only reads: the error is not about a transaction.
			if errno, ok := errors.AsType[unix.Errno](err); ok {
				return 0, errno
			}
			return 0, fmt.Errorf("wait for transactions: %v", err)
		}
	}
	return 0, ErrGeneration
}

// Monitor identifies the processes that commit transactions in a network
// namespace. It has no cost while Listen is not running.
type Monitor struct{ socket *nfnetlink.Socket }

// Committer is a process that committed a transaction.
type Committer struct {
	// Port is the netlink port from which the transaction was sent (see
	// Conn.Port).
	Port uint32
	// PID is the process id in the initial PID namespace.
	PID int
	// Name is the name of the process (comm), at most 15 bytes.
	Name string
}

// OpenMonitor opens a Monitor in the network namespace of the calling thread.
func OpenMonitor() (*Monitor, error) {
	s, err := openSocket()
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
	binary.NativeEndian.PutUint16(typ[:], nftMessage(unix.NFT_MSG_NEWGEN))
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
	if len(msg) < nfnetlink.HeaderLen || msg.Type() != nftMessage(unix.NFT_MSG_NEWGEN) {
		return c, false
	}
	return Committer{
		Port: msg.Port(),
		PID:  int(be32(attr(msg.Attributes(), unix.NFTA_GEN_PROC_PID))),
		Name: cString(attr(msg.Attributes(), unix.NFTA_GEN_PROC_NAME)),
	}, true
}
