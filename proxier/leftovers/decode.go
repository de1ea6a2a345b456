package leftovers

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// errShort says that a message of the kernel ends too early.
var errShort = errors.New("netlink message is too short")

// decodeRule decodes what a rule is to us, after the netlink header, and tells its table. Of its expressions, only verdicts are looked at: those of
// iptables' own matches and targets stay what they are.
func decodeRule(msg []byte) (r rule, table string, err error) {
	if len(msg) < nl.SizeofNfgenmsg {
		return r, "", errShort
	}
	err = eachAttr(msg[nl.SizeofNfgenmsg:], func(typ uint16, value []byte) (err error) {
		switch typ {
		case unix.NFTA_RULE_TABLE:
			table = nl.BytesToString(value)
		case unix.NFTA_RULE_CHAIN:
			r.chain = nl.BytesToString(value)
		case unix.NFTA_RULE_HANDLE:
			if len(value) != 8 {
				return errShort
			}
			r.handle = binary.BigEndian.Uint64(value)
		case unix.NFTA_RULE_EXPRESSIONS:
			r.target, err = targetIn(value)
		}
		return err
	})
	if err != nil {
		return r, table, fmt.Errorf("decode rule of chain %s: %w", r.chain, err)
	}
	return r, table, nil
}

// targetIn returns the chain that the expressions of a rule jump or go to, "" if there is none.
func targetIn(expressions []byte) (target string, err error) {
	err = eachAttr(expressions, func(_ uint16, expression []byte) error {
		name, err := dig(expression, unix.NFTA_EXPR_NAME)
		if err != nil || nl.BytesToString(name) != "immediate" {
			return err
		}
		chain, err := dig(expression, unix.NFTA_EXPR_DATA, unix.NFTA_IMMEDIATE_DATA, unix.NFTA_DATA_VERDICT, unix.NFTA_VERDICT_CHAIN)
		if chain != nil {
			target = nl.BytesToString(chain)
		}
		return err
	})
	return target, err
}

// dig returns the value of an attribute within attributes, nil if it is not there.
func dig(b []byte, path ...uint16) (value []byte, err error) {
	value = b
	for _, want := range path {
		in := value
		value = nil
		err := eachAttr(in, func(typ uint16, v []byte) error {
			if typ == want {
				value = v
			}
			return nil
		})
		if err != nil || value == nil {
			return nil, err
		}
	}
	return value, nil
}

// eachAttr calls f for each attribute of b, until it returns an error.
func eachAttr(b []byte, f func(typ uint16, value []byte) error) error {
	attrs, err := nl.ParseRouteAttr(b)
	if err != nil {
		return err
	}
	for _, a := range attrs {
		if err := f(a.Attr.Type&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), a.Value); err != nil {
			return err
		}
	}
	return nil
}
