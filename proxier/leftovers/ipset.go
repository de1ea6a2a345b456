package leftovers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// setNames are the IPv4 IP sets of the IPVS mode. See setNameIPv6 for IPv6.
var setNames = []string{
	"KUBE-LOOP-BACK", "KUBE-CLUSTER-IP", "KUBE-EXTERNAL-IP", "KUBE-EXTERNAL-IP-LOCAL",
	"KUBE-LOAD-BALANCER", "KUBE-LOAD-BALANCER-LOCAL", "KUBE-LOAD-BALANCER-FW",
	"KUBE-LOAD-BALANCER-SOURCE-IP", "KUBE-LOAD-BALANCER-SOURCE-CIDR",
	"KUBE-NODE-PORT-TCP", "KUBE-NODE-PORT-LOCAL-TCP", "KUBE-NODE-PORT-UDP", "KUBE-NODE-PORT-LOCAL-UDP",
	"KUBE-NODE-PORT-SCTP-HASH", "KUBE-NODE-PORT-LOCAL-SCTP-HASH", "KUBE-HEALTH-CHECK-NODE-PORT", "KUBE-IPVS-IPS",
}

// maxSetName is IPSET_MAXNAMELEN without the terminating zero byte.
const maxSetName = 31

// setNameIPv6 returns the name of the IPv6 set: KUBE-6- replaces KUBE-, and
// the name is truncated to maxSetName bytes.
func setNameIPv6(name string) string {
	name = "KUBE-6-" + strings.TrimPrefix(name, "KUBE-")
	return name[:min(len(name), maxSetName)]
}

// leftoverSets returns the names of the sets of the IPVS mode that exist.
func leftoverSets() ([]string, error) {
	names, err := listSets()
	if err != nil {
		return nil, fmt.Errorf("list IP sets: %w", err)
	}
	return slices.DeleteFunc(names, func(name string) bool { return !isLeftoverSet(name) }), nil
}

func isLeftoverSet(name string) bool {
	return slices.ContainsFunc(setNames, func(n string) bool { return name == n || name == setNameIPv6(n) })
}

// sets destroys the IP sets. It keeps sets that rules still use, so the rules
// must be removed first.
func (r *removal) sets(ctx context.Context) error {
	names, err := leftoverSets()
	if r.findOnly {
		if len(names) > 0 {
			r.addRemoved(count(len(names), "IP set"))
		}
		return err
	}
	errs := []error{err}
	for _, name := range names {
		switch err := destroySet(ctx, name); {
		case err == nil:
			r.addRemoved("IP set " + name)
		case errors.Is(err, unix.Errno(nl.IPSET_ERR_BUSY)):
			r.addKept("IP set " + name + ", used by a rule of another program")
		case !errors.Is(err, unix.ENOENT):
			errs = append(errs, fmt.Errorf("destroy IP set %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

const (
	// setBusyWait is the timeout for a set that deleted rules use. The kernel
	// frees the rules some time after their transaction.
	setBusyWait     = time.Second
	setBusyInterval = 10 * time.Millisecond
)

func destroySet(ctx context.Context, name string) error {
	for end := time.Now().Add(setBusyWait); ; {
		_, err := setRequest(nl.IPSET_CMD_DESTROY, nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(name)))
		if !errors.Is(err, unix.Errno(nl.IPSET_ERR_BUSY)) || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(setBusyInterval):
		}
	}
}

// flagListNames is IPSET_FLAG_LIST_SETNAME: list the sets without their
// elements.
const flagListNames = 1 << 1

// listSets returns the names of all IP sets. There are none if the kernel
// module is not loaded.
//
// It does not use netlink.IpsetListAll, which requests all elements of all
// sets and panics on an error that is not an errno.
func listSets() ([]string, error) {
	if !moduleLoaded("ip_set") {
		return nil, nil
	}
	messages, err := setRequest(nl.IPSET_CMD_LIST,
		nl.NewRtAttr(int(nl.IPSET_ATTR_FLAGS|nl.NLA_F_NET_BYTEORDER), nl.BEUint32Attr(flagListNames)))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, msg := range messages {
		name := nfnetlink.Attr(attributesOf(msg, nl.SizeofNfgenmsg), nl.IPSET_ATTR_SETNAME)
		names = append(names, unix.ByteSliceToString(name))
	}
	return names, nil
}

// portsInSet returns the ports of the elements of an IP set.
func portsInSet(name string) ([]uint16, error) {
	messages, err := setRequest(nl.IPSET_CMD_LIST, nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(name)))
	if err != nil {
		return nil, err
	}
	var ports []uint16
	for _, msg := range messages {
		elements := nfnetlink.Attr(attributesOf(msg, nl.SizeofNfgenmsg), nl.IPSET_ATTR_ADT)
		nfnetlink.EachAttr(elements, func(_ uint16, element []byte) {
			if port := nfnetlink.Attr(element, nl.IPSET_ATTR_PORT); len(port) == 2 {
				ports = append(ports, binary.BigEndian.Uint16(port))
			}
		})
	}
	return ports, nil
}

func setRequest(command int, attr *nl.RtAttr) ([][]byte, error) {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_IPSET<<8|command, nl.GetIpsetFlags(command))
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	req.AddData(attr)
	return req.Execute(unix.NETLINK_NETFILTER, 0)
}

// moduleLoaded reports whether a kernel module is loaded or built in. A
// netlink request would load the module. It returns false for a built-in
// module without parameters, and true if sysfs is not mounted.
func moduleLoaded(name string) bool {
	const modules = "/sys/module"
	if _, err := os.Stat(modules); err != nil {
		return true
	}
	_, err := os.Stat(modules + "/" + name)
	return err == nil
}

// attributesOf returns the attributes behind the header of a message.
func attributesOf(msg []byte, header int) []byte { return msg[min(header, len(msg)):] }
