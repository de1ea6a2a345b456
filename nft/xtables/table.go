package xtables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// Table is a table in the format of the kernel: a sequence of entries. An entry
// is a rule, or the head or the end of a chain.
//
//	First[hook] ──► rule          a built-in chain has no head
//	                rule ────┐    a jump is the offset of a chain's first rule
//	Policy[hook] ─► policy   │
//	                …        │
//	                head     │    of another chain: its name, target ERROR
//	                rule ◄───┘
//	                RETURN        the end of another chain
//	                …
//	                ERROR         the end of the table
type Table struct {
	Family nft.Family
	Name   string // "filter"

	info    info
	data    []byte
	entries []entry
	names   []string // of all chains
	chains  map[string]chain
	starts  map[int]string // the names of the chains by the offset of their first rule
}

// hookChains are the built-in chains by hook.
var hookChains = [unix.NF_INET_NUMHOOKS]string{
	unix.NF_INET_PRE_ROUTING:  "PREROUTING",
	unix.NF_INET_LOCAL_IN:     "INPUT",
	unix.NF_INET_FORWARD:      "FORWARD",
	unix.NF_INET_LOCAL_OUT:    "OUTPUT",
	unix.NF_INET_POST_ROUTING: "POSTROUTING",
}

// entry has the offsets of an entry, of its target, and of the next entry. The
// target ends with the entry.
type entry struct{ at, target, next int }

// chain has the indexes of a chain's entries. Its rules are the entries from
// first to last, excluding last.
type chain struct {
	head        int // equal to first for a built-in chain
	first, last int
}

// Offsets and sizes in struct xt_entry_target.
const (
	targetNameAt  = 2
	targetDataAt  = 32 // standard target: an offset, or a negative verdict; ERROR: a name
	chainNameLen  = 30 // XT_FUNCTION_MAXNAMELEN
	minTargetSize = targetDataAt + 4
)

// errEntries is returned for a table that the kernel cannot have returned.
var errEntries = errors.New("unexpected entries from the kernel")

// decode decodes a table from the results of IPT_SO_GET_INFO and
// IPT_SO_GET_ENTRIES.
func decode(family nft.Family, name string, i info, data []byte) (*Table, error) {
	t := &Table{Family: family, Name: name, info: i, data: data, entries: make([]entry, 0, i.Entries)}
	targetOffset := formats[family].target
	for at := 0; at < len(data); {
		if len(data)-at < targetOffset+4 {
			return t, fmt.Errorf("%w: %d bytes at %d of %d", errEntries, len(data)-at, at, len(data))
		}
		e := entry{
			at:     at,
			target: at + int(binary.NativeEndian.Uint16(data[at+targetOffset:])),
			next:   at + int(binary.NativeEndian.Uint16(data[at+targetOffset+2:])),
		}
		if e.target < at+targetOffset+4 || e.next < e.target+minTargetSize || e.next > len(data) {
			return t, fmt.Errorf("%w: entry at %d of %d with its target at %d, next at %d",
				errEntries, at, len(data), e.target, e.next)
		}
		t.entries = append(t.entries, e)
		at = e.next
	}
	return t, t.findChains()
}

// hasHook reports whether the table has a built-in chain for a hook.
func (t *Table) hasHook(hook int) bool { return t.info.Hooks&(1<<hook) != 0 }

// findChains finds the chains. The last entry is in no chain.
func (t *Table) findChains() error {
	var found []chain
	for i := range max(0, len(t.entries)-1) {
		e := t.entries[i]
		if hook := t.hookAt(e.at); hook >= 0 {
			t.names, found = append(t.names, hookChains[hook]), append(found, chain{head: i, first: i})
		} else if name, ok := t.headName(e); ok {
			t.names, found = append(t.names, name), append(found, chain{head: i, first: i + 1})
		}
		if len(found) == 0 {
			return fmt.Errorf("%w: entry at %d is in no chain", errEntries, e.at)
		}
		found[len(found)-1].last = i
	}
	t.chains, t.starts = make(map[string]chain, len(found)), make(map[int]string, len(found))
	for i, name := range t.names {
		if found[i].last < found[i].first {
			return fmt.Errorf("%w: chain %s has no end", errEntries, name)
		}
		t.chains[name] = found[i]
		t.starts[t.entries[found[i].first].at] = name
	}
	return nil
}

// hookAt returns the hook whose built-in chain begins at an offset, -1 if none
// does.
func (t *Table) hookAt(at int) int {
	for hook := range hookChains {
		if t.hasHook(hook) && int(t.info.First[hook]) == at {
			return hook
		}
	}
	return -1
}

// headName returns the name of the chain whose head is the entry. ok is false
// if the entry is not a head.
func (t *Table) headName(e entry) (name string, ok bool) {
	if t.targetName(e) != "ERROR" {
		return "", false
	}
	data := t.data[e.target+targetDataAt : e.next]
	return unix.ByteSliceToString(data[:min(len(data), chainNameLen)]), true
}

func (t *Table) targetName(e entry) string {
	return unix.ByteSliceToString(t.data[e.target+targetNameAt : e.target+targetDataAt])
}

// continuation returns the offset of the entry that receives the packets that
// e matches: the first of another chain, or the next entry if e has no
// target. ok is false if e has a verdict or a target extension.
func (t *Table) continuation(e entry) (at int, ok bool) {
	verdict, ok := t.verdict(e)
	return verdict, ok && verdict >= 0
}

// verdict returns the number in a standard target: an offset, or a negative
// verdict. ok is false if e has a target extension.
func (t *Table) verdict(e entry) (verdict int, ok bool) {
	if t.data[e.target+targetNameAt] != 0 { // the standard target has no name
		return 0, false
	}
	return int(int32(binary.NativeEndian.Uint32(t.data[e.target+targetDataAt:]))), true
}

// Chains returns the names of all chains.
func (t *Table) Chains() []string { return slices.Clone(t.names) }
