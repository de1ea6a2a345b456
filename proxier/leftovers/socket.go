package leftovers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// socket is a netlink socket to nf_tables of the calling thread's network namespace.
type socket struct {
	s       *nl.NetlinkSocket
	handles map[int]*nl.SocketHandle
}

// receiveBuffer is the size of the receive buffer in bytes: room for refusals of about 800 bytes of kernel memory each.
const receiveBuffer = 8 << 20

func openSocket() (*socket, error) {
	s, err := nl.Subscribe(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	if s.SetReceiveBufferSize(receiveBuffer, true) != nil { // which takes CAP_NET_ADMIN in the initial user namespace
		if err := s.SetReceiveBufferSize(receiveBuffer, false); err != nil {
			s.Close()
			return nil, fmt.Errorf("size receive buffer of netlink socket: %w", err)
		}
	}
	return &socket{s: s, handles: map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: {Socket: s}}}, nil
}

func (s *socket) close() { s.s.Close() }

// send sends one datagram, for which the send buffer must be large enough as a whole.
func (s *socket) send(data []byte) error {
	fd, size := s.s.GetFd(), len(data)+4096
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, size) != nil {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size); err != nil {
			return fmt.Errorf("size send buffer: %w", err)
		}
	}
	return unix.Sendto(fd, data, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

// answers returns the sequence numbers that the kernel acknowledged (errno 0) or refused. It works on a transaction while that is being
// sent, so that the answers are there at once.
func (s *socket) answers() iter.Seq2[uint32, unix.Errno] {
	return func(yield func(seq uint32, errno unix.Errno) bool) {
		buf := make([]byte, nl.RECEIVE_BUFFER_SIZE)
		for {
			n, _, err := unix.Recvfrom(s.s.GetFd(), buf, unix.MSG_DONTWAIT)
			if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOBUFS) { // some were lost
				continue
			}
			if err != nil {
				return
			}
			messages, err := syscall.ParseNetlinkMessage(buf[:n])
			if err != nil {
				return
			}
			for _, m := range messages {
				if m.Header.Type != unix.NLMSG_ERROR || len(m.Data) < 4 {
					continue
				}
				if !yield(m.Header.Seq, unix.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))) {
					return
				}
			}
		}
	}
}

// jumps returns the rules of a chain that jump or go to another chain; none if there is no such chain.
func (s *socket) jumps(table *nft.Table, chain string) ([]rule, error) {
	req := newRequest(unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, table, stringAttr(unix.NFTA_RULE_CHAIN, chain))
	req.Sockets = s.handles
	var rules []rule
	var invalid error
	err := req.ExecuteIter(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWRULE, func(msg []byte) bool {
		r, of, err := decodeRule(msg)
		switch {
		case err != nil:
			invalid = err
		case of == table.Name && r.chain == chain && r.target != "": // kernels differ in whether they select by table and chain
			rules = append(rules, r)
		}
		return invalid == nil
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return rules, errors.Join(err, invalid)
}
