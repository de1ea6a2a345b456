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
)

// setNames are the IP sets of kube-proxy's IPVS mode, for IPv4. Those for IPv6 have KUBE-6- in place of KUBE-, cut to the length that names may
// have.
var setNames = []string{
	"KUBE-LOOP-BACK", "KUBE-CLUSTER-IP", "KUBE-EXTERNAL-IP", "KUBE-EXTERNAL-IP-LOCAL",
	"KUBE-LOAD-BALANCER", "KUBE-LOAD-BALANCER-LOCAL", "KUBE-LOAD-BALANCER-FW", "KUBE-LOAD-BALANCER-SOURCE-IP", "KUBE-LOAD-BALANCER-SOURCE-CIDR",
	"KUBE-NODE-PORT-TCP", "KUBE-NODE-PORT-LOCAL-TCP", "KUBE-NODE-PORT-UDP", "KUBE-NODE-PORT-LOCAL-UDP",
	"KUBE-NODE-PORT-SCTP-HASH", "KUBE-NODE-PORT-LOCAL-SCTP-HASH", "KUBE-HEALTH-CHECK-NODE-PORT", "KUBE-IPVS-IPS",
}

// maxSetName is IPSET_MAXNAMELEN without the byte that ends a name.
const maxSetName = 31

func setNameIPv6(name string) string {
	name = "KUBE-6-" + strings.TrimPrefix(name, "KUBE-")
	return name[:min(len(name), maxSetName)]
}

func ownedSet(name string) bool {
	return slices.ContainsFunc(setNames, func(n string) bool { return name == n || name == setNameIPv6(n) })
}

// removeSets destroys the IP sets. Rules must be gone before: a set that rules use stays.
func removeSets(ctx context.Context, report *Report) error {
	names, err := listSets()
	if err != nil {
		return fmt.Errorf("list IP sets: %w", err)
	}
	var errs []error
	for _, name := range names {
		if !ownedSet(name) {
			continue
		}
		switch err := destroySet(ctx, name); {
		case err == nil:
			report.removed("IP set " + name)
		case errors.Is(err, unix.Errno(nl.IPSET_ERR_BUSY)):
			report.kept("IP set " + name + ", for a rule of another program")
		case !errors.Is(err, unix.ENOENT):
			errs = append(errs, fmt.Errorf("destroy IP set %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

const (
	// setBusyWait is how long a set may be in use by rules that are gone: the kernel takes down the rules of a transaction after it.
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

// listOnlyNames is IPSET_FLAG_LIST_SETNAME: list the sets without what is in them.
const listOnlyNames = 1 << 1

// listSets returns the names of all IP sets; none on a kernel that has no IP sets, or has not loaded them.
func listSets() ([]string, error) {
	if !moduleThere("ip_set") {
		return nil, nil
	}
	messages, err := setRequest(nl.IPSET_CMD_LIST, nl.NewRtAttr(int(nl.IPSET_ATTR_FLAGS|nl.NLA_F_NET_BYTEORDER), nl.BEUint32Attr(listOnlyNames)))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, msg := range messages {
		if len(msg) < nl.SizeofNfgenmsg {
			return nil, errShort
		}
		name, err := dig(msg[nl.SizeofNfgenmsg:], nl.IPSET_ATTR_SETNAME)
		if err != nil {
			return nil, err
		}
		names = append(names, nl.BytesToString(name))
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
		if len(msg) < nl.SizeofNfgenmsg {
			return nil, errShort
		}
		elements, err := dig(msg[nl.SizeofNfgenmsg:], nl.IPSET_ATTR_ADT)
		if err != nil {
			return nil, err
		}
		err = eachAttr(elements, func(_ uint16, element []byte) error {
			port, err := dig(element, nl.IPSET_ATTR_PORT)
			if len(port) == 2 {
				ports = append(ports, binary.BigEndian.Uint16(port))
			}
			return err
		})
		if err != nil {
			return nil, err
		}
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

// moduleThere says whether the kernel has a module at work, loaded or built in. To ask the module itself would load it. It is a guess for modules
// without parameters that are built in. Where sysfs is not mounted it is taken to be there.
func moduleThere(name string) bool {
	const modules = "/sys/module"
	if _, err := os.Stat(modules); err != nil {
		return true
	}
	_, err := os.Stat(modules + "/" + name)
	return err == nil
}
