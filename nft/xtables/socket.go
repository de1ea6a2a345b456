package xtables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// api has the constants of the kernel interface for the legacy tables of a
// family: include/uapi/linux/netfilter_ipv4/ip_tables.h, and ip6_tables.h.
type api struct {
	names        string // file in /proc/net with the names of the tables
	domain       int    // of sockets
	level        int    // of socket options
	targetOffset int    // of target_offset in an entry; next_offset follows
}

var apis = map[nft.Family]api{
	nft.IPv4: {"ip_tables_names", unix.AF_INET, unix.SOL_IP, 88},
	nft.IPv6: {"ip6_tables_names", unix.AF_INET6, unix.SOL_IPV6, 140},
}

// Socket options, which are the same for both families.
const (
	getInfo        = 64 // IPT_SO_GET_INFO
	getEntries     = 65 // IPT_SO_GET_ENTRIES
	setReplace     = 64 // IPT_SO_SET_REPLACE
	setAddCounters = 65 // IPT_SO_SET_ADD_COUNTERS
)

// Offsets and sizes in the arguments of the options, on 64-bit machines. Each
// argument begins with the name of the table.
const (
	tableNameLen = 32 // XT_TABLE_MAXNAMELEN

	infoLen         = 84 // struct ipt_getinfo
	infoHooksAt     = 32
	infoEntryAt     = 36 // one offset per hook
	infoUnderflowAt = 56 // one offset per hook
	infoCountAt     = 76
	infoSizeAt      = 80

	entriesSizeAt = 32 // in struct ipt_get_entries
	entriesAt     = 40

	replaceHooksAt     = 32 // in struct ipt_replace
	replaceCountAt     = 36
	replaceSizeAt      = 40
	replaceEntryAt     = 44
	replaceUnderflowAt = 64
	replaceCountersAt  = 84 // the number of counters; a pointer to them follows
	replacePointerAt   = 88
	replaceEntriesAt   = 96

	addCountersCountAt = 32 // in struct xt_counters_info
	addCountersAt      = 40
)

// Names returns the names of the tables of a family that exist, and creates
// none.
func Names(family nft.Family) ([]string, error) {
	// A request for a table would create the table.
	data, err := os.ReadFile("/proc/thread-self/net/" + apis[family].names)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // a kernel without legacy tables
	}
	if err != nil {
		return nil, fmt.Errorf("list legacy tables: %w", err)
	}
	return strings.Fields(string(data)), nil
}

// socket is a socket for the legacy tables of a family in the network
// namespace of the thread that opened it.
type socket struct {
	api
	fd int
}

func open(family nft.Family) (*socket, error) {
	a := apis[family]
	fd, err := unix.Socket(a.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	return &socket{api: a, fd: fd}, nil
}

func (s *socket) close() { unix.Close(s.fd) }

func (s *socket) read(name string) (Table, error) {
	for range attempts {
		info := make([]byte, infoLen)
		copy(info[:tableNameLen-1], name)
		if err := s.get(getInfo, info); err != nil {
			return Table{}, fmt.Errorf("read size: %w", err)
		}
		size := binary.NativeEndian.Uint32(info[infoSizeAt:])
		buf := make([]byte, entriesAt+int(size))
		copy(buf[:tableNameLen-1], name)
		binary.NativeEndian.PutUint32(buf[entriesSizeAt:], size)
		err := s.get(getEntries, buf)
		if errors.Is(err, unix.EAGAIN) { // the size has changed
			continue
		}
		if err != nil {
			return Table{}, fmt.Errorf("read entries: %w", err)
		}
		return decode(s.targetOffset, name, info, buf[entriesAt:])
	}
	return Table{}, fmt.Errorf("read entries: %w", unix.EAGAIN)
}

// counter is the counter of an entry: struct xt_counters.
type counter struct{ packets, bytes uint64 }

// replace replaces a table and returns the final counters of its old entries.
// entries is the number of old entries. If it is wrong, the kernel returns
// EAGAIN.
func (s *socket) replace(t Table, entries int) ([]counter, error) {
	counters := make([]counter, entries)
	var pinned runtime.Pinner
	defer pinned.Unpin()
	pinned.Pin(&counters[0])
	if err := s.set(setReplace, encodeReplace(t, counters)); err != nil {
		return nil, fmt.Errorf("replace entries: %w", err)
	}
	return counters, nil
}

// encodeReplace returns a struct ipt_replace with the entries of a table. The
// kernel writes the counters of the old entries to counters.
func encodeReplace(t Table, counters []counter) []byte {
	request := make([]byte, replaceEntriesAt, replaceEntriesAt+len(t.data))
	put := binary.NativeEndian.PutUint32
	copy(request[:tableNameLen-1], t.name)
	put(request[replaceHooksAt:], t.hooks)
	put(request[replaceCountAt:], uint32(len(t.entries)))
	put(request[replaceSizeAt:], uint32(len(t.data)))
	for hook := range hookChains {
		put(request[replaceEntryAt+4*hook:], uint32(t.first[hook]))
		put(request[replaceUnderflowAt+4*hook:], uint32(t.policy[hook]))
	}
	put(request[replaceCountersAt:], uint32(len(counters)))
	binary.NativeEndian.PutUint64(request[replacePointerAt:], uint64(uintptr(unsafe.Pointer(&counters[0]))))
	return append(request, t.data...)
}

// addCounters adds to the counters of a table, which were zero when it was
// replaced.
func (s *socket) addCounters(name string, counters []counter) error {
	request := make([]byte, addCountersAt, addCountersAt+16*len(counters))
	copy(request[:tableNameLen-1], name)
	binary.NativeEndian.PutUint32(request[addCountersCountAt:], uint32(len(counters)))
	for _, c := range counters {
		request = binary.NativeEndian.AppendUint64(request, c.packets)
		request = binary.NativeEndian.AppendUint64(request, c.bytes)
	}
	if err := s.set(setAddCounters, request); err != nil {
		return fmt.Errorf("add counters: %w", err)
	}
	return nil
}

// get reads a socket option. value is the argument and the result.
func (s *socket) get(option int, value []byte) error {
	length := uint32(len(value))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.fd), uintptr(s.level), uintptr(option),
		uintptr(unsafe.Pointer(&value[0])), uintptr(unsafe.Pointer(&length)), 0)
	return asError(errno)
}

func (s *socket) set(option int, value []byte) error {
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(s.fd), uintptr(s.level), uintptr(option),
		uintptr(unsafe.Pointer(&value[0])), uintptr(len(value)), 0)
	return asError(errno)
}

func asError(errno unix.Errno) error {
	if errno != 0 {
		return errno
	}
	return nil
}
