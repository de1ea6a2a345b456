package observe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Names that all proxies give to what has the same meaning and type.
const (
	table     = "kube-proxy"
	baseChain = "nat-prerouting"
	frontends = "service-ips" // address . protocol . port : verdict
)

// Prober asks for the state of the ruleset of a network namespace, without reading tables as a whole. It is not safe for concurrent use.
type Prober struct{ conn *netlink.Conn }

// NewProber connects to the namespace that the descriptor holds.
func NewProber(netns int) (*Prober, error) {
	conn, err := dial(netns)
	if err != nil {
		return nil, fmt.Errorf("prober: %w", err)
	}
	return &Prober{conn: conn}, nil
}

// dial connects to nf_tables in a namespace, with a buffer for what a transaction of many elements makes the kernel tell.
func dial(netns int) (*netlink.Conn, error) {
	const buffer = 256 << 20
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netns})
	if err != nil {
		return nil, err
	}
	if err := conn.SetReadBuffer(buffer); err != nil {
		return nil, errors.Join(fmt.Errorf("size receive buffer: %w", err), conn.Close())
	}
	return conn, nil
}

// Close closes the connection.
func (p *Prober) Close() error { return p.conn.Close() }

// Generation returns the number that every committed transaction of the namespace moves.
func (p *Prober) Generation() (uint32, error) {
	answers, err := p.ask(unix.NFT_MSG_GETGEN, unix.AF_UNSPEC, nil)
	if err != nil || len(answers) == 0 {
		return 0, errors.Join(errors.New("no generation"), err)
	}
	var generation uint32
	for typ, value := range attributes(answers[0]) {
		if typ == unix.NFTA_GEN_ID && len(value) == 4 {
			generation = binary.BigEndian.Uint32(value)
		}
	}
	return generation, nil
}

// Hooked tells whether packets of a family get to the proxy's table.
func (p *Prober) Hooked(family uint8) (bool, error) {
	answers, err := p.ask(unix.NFT_MSG_GETCHAIN, family, func(e *netlink.AttributeEncoder) {
		e.String(unix.NFTA_CHAIN_TABLE, table)
		e.String(unix.NFTA_CHAIN_NAME, baseChain)
	})
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	for _, answer := range answers {
		for typ := range attributes(answer) {
			if typ == unix.NFTA_CHAIN_HOOK {
				return true, nil
			}
		}
	}
	return false, err
}

// Serves tells whether all of these IPv4 addresses and TCP ports have a row.
func (p *Prober) Serves(all []netip.AddrPort) (bool, error) {
	const atATime = 256
	for len(all) > 0 {
		some := all[:min(atATime, len(all))]
		all = all[len(some):]
		answers, err := p.ask(unix.NFT_MSG_GETSETELEM, unix.NFPROTO_IPV4, func(e *netlink.AttributeEncoder) { encodeRows(e, some) })
		if errors.Is(err, unix.ENOENT) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("look for rows of %s: %w", frontends, err)
		}
		if len(answers) != len(some) {
			return false, nil
		}
	}
	return true, nil
}

// encodeRows names rows of the map service-ips: every part of a key is padded to four bytes.
func encodeRows(e *netlink.AttributeEncoder, keys []netip.AddrPort) {
	e.String(unix.NFTA_SET_ELEM_LIST_TABLE, table)
	e.String(unix.NFTA_SET_ELEM_LIST_SET, frontends)
	e.Nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(list *netlink.AttributeEncoder) error {
		for _, key := range keys {
			bytes := append(key.Addr().AsSlice(), unix.IPPROTO_TCP, 0, 0, 0)
			bytes = append(binary.BigEndian.AppendUint16(bytes, key.Port()), 0, 0)
			list.Nested(unix.NFTA_LIST_ELEM, func(row *netlink.AttributeEncoder) error {
				row.Nested(unix.NFTA_SET_ELEM_KEY, func(data *netlink.AttributeEncoder) error {
					data.Bytes(unix.NFTA_DATA_VALUE, bytes)
					return nil
				})
				return nil
			})
		}
		return nil
	})
}

// ask sends a request and returns the attributes of all answers.
func (p *Prober) ask(typ uint16, family uint8, body func(*netlink.AttributeEncoder)) ([][]byte, error) {
	data := []byte{family, unix.NFNETLINK_V0, 0, 0}
	if body != nil {
		e := netlink.NewAttributeEncoder()
		body(e)
		encoded, err := e.Encode()
		if err != nil {
			return nil, err
		}
		data = append(data, encoded...)
	}
	header := netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | typ), Flags: netlink.Request | netlink.Acknowledge}
	if _, err := p.conn.Send(netlink.Message{Header: header, Data: data}); err != nil {
		return nil, err
	}
	var answers [][]byte
	for {
		messages, err := p.conn.Receive()
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			if m.Header.Type == netlink.Error { // without one: the acknowledgement
				return answers, nil
			}
			answers = append(answers, m.Data[nfgenLen:])
		}
	}
}

// nfgenLen is the length of struct nfgenmsg, which begins all messages of netfilter.
const nfgenLen = 4

// attributes goes through encoded attributes.
func attributes(data []byte) func(yield func(uint16, []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		decoder, err := netlink.NewAttributeDecoder(data)
		if err != nil {
			return
		}
		for decoder.Next() {
			if !yield(decoder.Type(), decoder.Bytes()) {
				return
			}
		}
	}
}
