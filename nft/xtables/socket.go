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

// Socket options, which are the same for both families.
const (
	getInfo        = 64 // IPT_SO_GET_INFO
	getEntries     = 65 // IPT_SO_GET_ENTRIES
	setReplace     = 64 // IPT_SO_SET_REPLACE
	setAddCounters = 65 // IPT_SO_SET_ADD_COUNTERS
)

// tableName is the name of a table, with zeros at the end.
type tableName [32]byte // XT_TABLE_MAXNAMELEN

func nameOf(table string) (name tableName) {
	copy(name[:len(name)-1], table)
	return name
}

// hookOffsets has an offset in the entries for each hook.
type hookOffsets [unix.NF_INET_NUMHOOKS]uint32

// info is struct ipt_getinfo.
type info struct {
	Name          tableName
	Hooks         uint32      // bitmap: the hooks with a built-in chain
	First, Policy hookOffsets // valid only for these hooks
	Entries, Size uint32      // number of the entries and their size in bytes
}

// request is struct ipt_get_entries and struct xt_counters_info, without what
// follows.
type request struct {
	Name tableName
	Size uint32
	_    uint32
}

// replacement is struct ipt_replace on 64-bit machines, without the entries,
// which follow.
type replacement struct {
	Name                 tableName
	Hooks, Entries, Size uint32
	First, Policy        hookOffsets
	OldEntries           uint32
	Counters             uint64 // pointer to the counters of the old entries
}

// counter is the counter of an entry: struct xt_counters.
type counter struct{ Packets, Bytes uint64 }

// encode appends a structure of numbers to b.
func encode(b []byte, structure any) []byte {
	b, err := binary.Append(b, binary.NativeEndian, structure)
	if err != nil {
		panic(err) // the structure has a field without a size
	}
	return b
}

// Names returns the names of the tables of a family that exist, and creates
// none.
func Names(family nft.Family) ([]string, error) {
	// A request for a table would create the table.
	data, err := os.ReadFile("/proc/thread-self/net/" + formats[family].names)
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
	family nft.Family
	fd     int
}

func open(family nft.Family) (*socket, error) {
	fd, err := unix.Socket(formats[family].domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open socket: %w", err)
	}
	return &socket{family, fd}, nil
}

func (s *socket) close() { unix.Close(s.fd) }

func (s *socket) read(name string) (*Table, error) {
	for range attempts {
		var i info
		answer := encode(nil, info{Name: nameOf(name)})
		if err := s.get(getInfo, answer); err != nil {
			return nil, fmt.Errorf("read size: %w", err)
		}
		if _, err := binary.Decode(answer, binary.NativeEndian, &i); err != nil {
			return nil, err
		}
		header := encode(nil, request{Name: nameOf(name), Size: i.Size})
		answer = append(header, make([]byte, i.Size)...)
		err := s.get(getEntries, answer)
		if errors.Is(err, unix.EAGAIN) { // the size has changed
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read entries: %w", err)
		}
		return decode(s.family, name, i, answer[len(header):])
	}
	return nil, fmt.Errorf("read entries: %w", unix.EAGAIN)
}

// replace replaces a table and returns the final counters of its old entries.
// entries is the number of old entries. If it is wrong, the kernel returns
// EAGAIN.
func (s *socket) replace(t *Table, entries int) ([]counter, error) {
	counters := make([]counter, entries)
	var pinned runtime.Pinner
	defer pinned.Unpin()
	pinned.Pin(&counters[0])
	header := encode(nil, replacement{
		Name: nameOf(t.Name), Hooks: t.info.Hooks, Entries: uint32(len(t.entries)), Size: uint32(len(t.data)),
		First: t.info.First, Policy: t.info.Policy,
		OldEntries: uint32(entries), Counters: uint64(uintptr(unsafe.Pointer(&counters[0]))),
	})
	if err := s.set(setReplace, append(header, t.data...)); err != nil {
		return nil, fmt.Errorf("replace entries: %w", err)
	}
	return counters, nil
}

// addCounters adds to the counters of a table, which were zero when it was
// replaced.
func (s *socket) addCounters(name string, counters []counter) error {
	header := encode(nil, request{Name: nameOf(name), Size: uint32(len(counters))})
	if err := s.set(setAddCounters, encode(header, counters)); err != nil {
		return fmt.Errorf("add counters: %w", err)
	}
	return nil
}

// get reads a socket option. value is the argument and the result.
func (s *socket) get(option int, value []byte) error {
	length := uint32(len(value))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.fd), uintptr(formats[s.family].level),
		uintptr(option), uintptr(unsafe.Pointer(&value[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (s *socket) set(option int, value []byte) error {
	return unix.SetsockoptString(s.fd, formats[s.family].level, option, string(value))
}
