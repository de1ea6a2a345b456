package leftovers

import (
	"errors"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// errShort is returned for a truncated message.
var errShort = errors.New("netlink message is too short")

// attribute returns the value of the attribute at a path of nested
// attributes, or nil.
func attribute(b []byte, path ...uint16) (value []byte, err error) {
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

// eachAttr calls f for each attribute of b until f returns an error.
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
