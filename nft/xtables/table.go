package xtables

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
)

// Table is a table in the format of the kernel: a sequence of entries. An entry
// is a rule, or the head or the end of a chain.
//
//	first[hook] ──► rule          a built-in chain has no head
//	                rule ────┐    a jump is the offset of a chain's first rule
//	policy[hook] ─► policy   │
//	                …        │
//	                head     │    of another chain: its name, target ERROR
//	                rule ◄───┘
//	                RETURN        the end of another chain
//	                …
//	                ERROR         the end of the table
type Table struct {
	name          string
	hooks         uint32                     // bitmap: the hooks with a built-in chain
	first, policy [unix.NF_INET_NUMHOOKS]int // offsets, valid only for these hooks
	data          []byte
	entries       []entry
	chains        []chain
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
	name        string
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
func decode(targetOffset int, name string, info, data []byte) (Table, error) {
	t := Table{name: name, data: data, hooks: binary.NativeEndian.Uint32(info[infoHooksAt:])}
	for hook := range hookChains {
		t.first[hook] = int(binary.NativeEndian.Uint32(info[infoEntryAt+4*hook:]))
		t.policy[hook] = int(binary.NativeEndian.Uint32(info[infoUnderflowAt+4*hook:]))
	}
	t.entries = make([]entry, 0, binary.NativeEndian.Uint32(info[infoCountAt:]))
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
func (t *Table) hasHook(hook int) bool { return t.hooks&(1<<hook) != 0 }

// findChains finds the chains. The last entry is in no chain.
func (t *Table) findChains() error {
	for i := range max(0, len(t.entries)-1) {
		e := t.entries[i]
		if hook := t.hookAt(e.at); hook >= 0 {
			t.chains = append(t.chains, chain{name: hookChains[hook], head: i, first: i})
		} else if name, ok := t.headName(e); ok {
			t.chains = append(t.chains, chain{name: name, head: i, first: i + 1})
		}
		if len(t.chains) == 0 {
			return fmt.Errorf("%w: entry at %d is in no chain", errEntries, e.at)
		}
		t.chains[len(t.chains)-1].last = i
	}
	for _, c := range t.chains {
		if c.last < c.first {
			return fmt.Errorf("%w: chain %s has no end", errEntries, c.name)
		}
	}
	return nil
}

// hookAt returns the hook whose built-in chain begins at an offset, -1 if none
// does.
func (t *Table) hookAt(at int) int {
	for hook := range hookChains {
		if t.hasHook(hook) && t.first[hook] == at {
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
	return nfnetlink.CString(data[:min(len(data), chainNameLen)]), true
}

func (t *Table) targetName(e entry) string {
	return nfnetlink.CString(t.data[e.target+targetNameAt : e.target+targetDataAt])
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
func (t *Table) Chains() []string {
	names := make([]string, len(t.chains))
	for i, c := range t.chains {
		names[i] = c.name
	}
	return names
}

// Jump is a rule that jumps or goes to another chain.
type Jump struct {
	Chain, Target string
	Rule          int // index of the rule in the table
}

// Jumps returns the jumps of all chains. A jump into the middle of a chain is
// an error.
func (t *Table) Jumps() ([]Jump, error) {
	var all []Jump
	starts := t.starts()
	for _, c := range t.chains {
		for i := c.first; i < c.last; i++ {
			e := t.entries[i]
			at, ok := t.continuation(e)
			if !ok || at == e.next {
				continue
			}
			target, ok := starts[at]
			if !ok {
				return nil, fmt.Errorf("%w: rule at %d of chain %s jumps to %d, which is not a chain",
					errEntries, e.at, c.name, at)
			}
			all = append(all, Jump{c.name, target, i})
		}
	}
	return all, nil
}

// starts returns the names of the chains by the offset of their first rule.
func (t *Table) starts() map[int]string {
	starts := make(map[int]string, len(t.chains))
	for _, c := range t.chains {
		starts[t.entries[c.first].at] = c.name
	}
	return starts
}
