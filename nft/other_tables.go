package nft

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Inet is the family of tables for IPv4 and IPv6. Tables of other programs can
// have it; the package does not write such tables.
const Inet Family = unix.NFPROTO_INET

// Policies of base chains (linux/netfilter.h).
const (
	PolicyDrop   = 0 // NF_DROP
	PolicyAccept = 1 // NF_ACCEPT
)

// OtherChain is a base chain of a table of any program.
type OtherChain struct {
	Table *Table
	FoundChain
}

// BaseChains reads the base chains of all tables of a family that packets
// pass: those of dormant tables are left out.
func (c *Conn) BaseChains(f Family) ([]OtherChain, error) {
	var chains []OtherChain
	_, err := c.Snapshot(func() error {
		chains = nil
		dormant := make(map[string]bool)
		err := c.request(unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP, f, nil, func(msg []byte) {
			dormant[cString(attr(msg, unix.NFTA_TABLE_NAME))] = parseTable(msg).Flags&unix.NFT_TABLE_F_DORMANT != 0
		})
		if err != nil {
			return err
		}
		return c.request(unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, f, nil, func(msg []byte) {
			table := &Table{Family: f, Name: cString(attr(msg, unix.NFTA_CHAIN_TABLE))}
			if chain := parseChain(msg); chain.Hook != nil && !dormant[table.Name] {
				chains = append(chains, OtherChain{table, chain})
			}
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read base chains of family %s: %w", f, err)
	}
	return chains, nil
}

// Extension is an expression that runs a match or a target of iptables. It
// cannot be written.
type Extension struct {
	expr.Any
	Target   bool
	Name     string // such as conntrack or REJECT
	Revision uint32
	Data     []byte // the structure of the extension
}

// UnknownExpression is an expression that the package does not decode. It
// cannot be written.
type UnknownExpression struct {
	expr.Any
	Name string // such as limit
}

// Rules is RuleExpressions for the rules of any program: expressions that the
// package does not decode are Extensions and UnknownExpressions.
func (c *Conn) Rules(t *Table, chain string) ([]RuleExpressions, error) {
	return c.readExpressions(t, chain, decodeAny)
}

// decodeAny decodes an expression of any kind.
func decodeAny(f Family, attributes []byte) (expr.Any, error) {
	name, data := cString(attr(attributes, unix.NFTA_EXPR_NAME)), attr(attributes, unix.NFTA_EXPR_DATA)
	switch name {
	case "match", "target": // NFTA_TARGET_* have the numbers of NFTA_MATCH_*
		return &Extension{
			Target: name == "target", Name: cString(attr(data, unix.NFTA_MATCH_NAME)),
			Revision: be32(attr(data, unix.NFTA_MATCH_REV)), Data: slices.Clone(attr(data, unix.NFTA_MATCH_INFO)),
		}, nil
	case "range":
		e := &expr.Range{}
		if expr.Unmarshal(byte(f), data, e) == nil {
			return e, nil
		}
	}
	if e, err := decodeExpression(f, attributes); err == nil {
		return e, nil
	}
	return &UnknownExpression{Name: name}, nil
}

// FindAnySet is FindSet for sets of any program. The fields of a type that the
// package does not know are declared as one field of raw bytes.
func (c *Conn) FindAnySet(t *Table, name string) (*Set, error) {
	body := func(w *messageWriter) {
		w.string(unix.NFTA_SET_TABLE, t.Name)
		w.string(unix.NFTA_SET_NAME, name)
	}
	found, ok, err := find(c, unix.NFT_MSG_GETSET, t.Family, body, parseSet)
	if err != nil || !ok {
		return nil, errors.Join(err, fmt.Errorf("%s has no set %s", t, name))
	}
	if s, err := found.describe(); err == nil {
		return s, nil
	}
	if found.flags&nftSetConcat != 0 && found.flags&unix.NFT_SET_INTERVAL != 0 {
		return nil, fmt.Errorf("set %s of %s: ranges of data type %d are unknown", name, t, found.keyType)
	}
	s := &Set{
		Name: found.Name, Key: rawFields(found.keyType, found.keyLen),
		Interval: found.flags&unix.NFT_SET_INTERVAL != 0,
		Dynamic:  found.flags&unix.NFT_SET_EVAL != 0,
		Verdicts: found.flags&unix.NFT_SET_MAP != 0 && found.dataType == unix.NFT_DATA_VERDICT,
	}
	if found.flags&unix.NFT_SET_MAP != 0 && !s.Verdicts {
		s.Data = rawFields(found.dataType, found.dataLen)
	}
	return s, nil
}

// rawFields returns one field of bytes.
func rawFields(id, length uint32) Fields {
	raw := Type{id, "raw", int(length), orderBig, hex.EncodeToString, false}
	return Types(raw)
}

// SampleRows reads some rows of a set: the first that the kernel lists. The
// cost does not depend on the size of the set. It returns none if the set does
// not exist. It uses a connection of its own, which it closes, to end the
// kernel's listing.
func SampleRows(t *Table, set *Set) ([]Row, error) {
	c, err := Open()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	w := messageWriter{}
	at := w.beginNFT(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, t.Family)
	w.rowList(t, set.Name)
	w.end(at)
	if err := c.send(w.buf); err != nil {
		return nil, err
	}
	data, err := c.receive()
	if err != nil {
		return nil, err
	}
	var rows []Row
	_, err = eachMessage(data, w.seq, func(msg []byte) { rows = append(rows, parseRows(msg, set)...) })
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return rows, err
}
