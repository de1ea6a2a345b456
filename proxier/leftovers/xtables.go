package leftovers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// xtables is how the kernel hands out the legacy tables of a family: include/uapi/linux/netfilter_ipv4/ip_tables.h and its IPv6 twin.
type xtables struct {
	names        string // file that lists the tables
	domain       int    // of sockets
	level        int    // of socket options
	targetOffset int    // in an entry: a 16-bit offset of its target; that of the next entry follows
}

var xtablesOf = map[nft.Family]xtables{
	nft.IPv4: {"ip_tables_names", unix.AF_INET, unix.SOL_IP, 88},
	nft.IPv6: {"ip6_tables_names", unix.AF_INET6, unix.SOL_IPV6, 140},
}

const (
	getInfo    = 64 // IPT_SO_GET_INFO, IP6T_SO_GET_INFO
	getEntries = 65 // IPT_SO_GET_ENTRIES, IP6T_SO_GET_ENTRIES

	tableNameLen  = 32 // XT_TABLE_MAXNAMELEN
	infoLen       = 84 // struct ipt_getinfo
	infoSizeAt    = 80 // in it: size of the entries in bytes
	entriesAt     = 40 // in struct ipt_get_entries
	targetNameAt  = 2  // in struct xt_entry_target
	targetDataAt  = 32
	targetNameLen = 30 // XT_FUNCTION_MAXNAMELEN + 1
)

// legacyTables returns those of the tables that are in use as legacy tables. The kernel lists them only if iptables-legacy, or who does
// as it does, made them; asking for one by name would make it.
func legacyTables(family nft.Family) ([]string, error) {
	data, err := os.ReadFile("/proc/thread-self/net/" + xtablesOf[family].names)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // a kernel without legacy tables
	}
	if err != nil {
		return nil, fmt.Errorf("list legacy tables: %w", err)
	}
	used := strings.Fields(string(data))
	return slices.DeleteFunc(slices.Clone(tables), func(t string) bool { return !slices.Contains(used, t) }), nil
}

// legacyChains returns the chains of a legacy table, other than the built-in ones.
func legacyChains(family nft.Family, table string) ([]string, error) {
	x := xtablesOf[family]
	fd, err := unix.Socket(x.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	defer unix.Close(fd)
	for range attempts {
		info := make([]byte, infoLen)
		copy(info[:tableNameLen-1], table)
		if err := getsockopt(fd, x.level, getInfo, info); err != nil {
			return nil, fmt.Errorf("read size: %w", err)
		}
		size := binary.NativeEndian.Uint32(info[infoSizeAt:])
		buf := make([]byte, entriesAt+int(size))
		copy(buf[:tableNameLen-1], table)
		binary.NativeEndian.PutUint32(buf[tableNameLen:], size)
		err := getsockopt(fd, x.level, getEntries, buf)
		if errors.Is(err, unix.EAGAIN) { // its size changed meanwhile
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read entries: %w", err)
		}
		return x.chainsIn(buf[entriesAt:]), nil
	}
	return nil, fmt.Errorf("read entries: %w", unix.EAGAIN)
}

// chainsIn returns the names of the chains in the entries of a table. A chain begins with an entry whose target is ERROR
// and carries the name; the last entry is one such, named ERROR.
func (x xtables) chainsIn(entries []byte) []string {
	var chains []string
	for len(entries) >= x.targetOffset+4 {
		target := int(binary.NativeEndian.Uint16(entries[x.targetOffset:]))
		next := int(binary.NativeEndian.Uint16(entries[x.targetOffset+2:]))
		if next < x.targetOffset+4 || next > len(entries) {
			break
		}
		if target+targetDataAt+targetNameLen <= next && cString(entries[target+targetNameAt:target+targetDataAt]) == "ERROR" {
			if name := cString(entries[target+targetDataAt : target+targetDataAt+targetNameLen]); name != "ERROR" {
				chains = append(chains, name)
			}
		}
		entries = entries[next:]
	}
	return chains
}

func cString(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}

// getsockopt fills value, which also says what is asked for.
func getsockopt(fd, level, option int, value []byte) error {
	length := uint32(len(value))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&value[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
