package leftovers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// legacyTable is a table of x_tables as the kernel hands it out: one entry after the other, each a rule, the head or the end of a chain.
//
//	first[hook] ──► rule          built-in chains have no head
//	                rule ────┐    a jump is the offset of the first rule of a chain
//	policy[hook] ─► policy   │
//	                …        │
//	                head     │    of every other chain: its name, with the target ERROR
//	                rule ◄───┘
//	                RETURN        the end of every other chain
//	                …
//	                ERROR         the end of the table
type legacyTable struct {
	name          string
	hooks         uint32                     // bit by bit: those that the table has built-in chains for
	first, policy [unix.NF_INET_NUMHOOKS]int // any number for other hooks
	data          []byte
	entries       []legacyEntry
	chains        []legacyChain
}

// hookChains are the names of the built-in chains, by hook.
var hookChains = [unix.NF_INET_NUMHOOKS]string{
	unix.NF_INET_PRE_ROUTING:  "PREROUTING",
	unix.NF_INET_LOCAL_IN:     "INPUT",
	unix.NF_INET_FORWARD:      "FORWARD",
	unix.NF_INET_LOCAL_OUT:    "OUTPUT",
	unix.NF_INET_POST_ROUTING: "POSTROUTING",
}

// legacyEntry says where in a table an entry is, and its target, which ends with the entry.
type legacyEntry struct{ at, target, next int }

// legacyChain is a chain of a table, by the numbers of its entries. Those from first up to last are its rules, none if they are the same.
type legacyChain struct {
	name        string
	head        int // the same as first for a built-in chain
	first, last int
}

// Where in a target is what: struct xt_entry_target.
const (
	targetNameAt  = 2
	targetDataAt  = 32 // of the standard target, a verdict: an offset, negative for ACCEPT and the like; of ERROR, a name
	chainNameLen  = 30 // XT_FUNCTION_MAXNAMELEN
	minTargetSize = targetDataAt + 4
)

var errEntries = errors.New("entries of the kernel are not as expected")

// decodeTable decodes a table of what the kernel answers to IPT_SO_GET_INFO and IPT_SO_GET_ENTRIES.
func decodeTable(targetOffset int, name string, info, data []byte) (legacyTable, error) {
	t := legacyTable{name: name, data: data, hooks: binary.NativeEndian.Uint32(info[infoHooksAt:])}
	for hook := range hookChains {
		t.first[hook] = int(binary.NativeEndian.Uint32(info[infoEntryAt+4*hook:]))
		t.policy[hook] = int(binary.NativeEndian.Uint32(info[infoUnderflowAt+4*hook:]))
	}
	t.entries = make([]legacyEntry, 0, binary.NativeEndian.Uint32(info[infoCountAt:]))
	for at := 0; at < len(data); {
		if len(data)-at < targetOffset+4 {
			return t, fmt.Errorf("%w: %d bytes at %d of %d", errEntries, len(data)-at, at, len(data))
		}
		e := legacyEntry{
			at:     at,
			target: at + int(binary.NativeEndian.Uint16(data[at+targetOffset:])),
			next:   at + int(binary.NativeEndian.Uint16(data[at+targetOffset+2:])),
		}
		if e.target < at+targetOffset+4 || e.next < e.target+minTargetSize || e.next > len(data) {
			return t, fmt.Errorf("%w: entry at %d of %d with its target at %d, next at %d", errEntries, at, len(data), e.target, e.next)
		}
		t.entries = append(t.entries, e)
		at = e.next
	}
	return t, t.findChains()
}

// hooked says whether the table has a built-in chain for a hook.
func (t *legacyTable) hooked(hook int) bool { return t.hooks&(1<<hook) != 0 }

// findChains divides the entries into chains. The last entry is in none.
func (t *legacyTable) findChains() error {
	for i := range max(0, len(t.entries)-1) {
		e := t.entries[i]
		if name := t.builtInAt(e.at); name != "" {
			t.chains = append(t.chains, legacyChain{name: name, head: i, first: i})
		} else if name, ok := t.headName(e); ok {
			t.chains = append(t.chains, legacyChain{name: name, head: i, first: i + 1})
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

// builtInAt returns the name of the built-in chain that begins at an offset, "" if none does.
func (t *legacyTable) builtInAt(at int) string {
	for hook, name := range hookChains {
		if t.hooked(hook) && t.first[hook] == at {
			return name
		}
	}
	return ""
}

// headName returns the name of the chain of which an entry is the head.
func (t *legacyTable) headName(e legacyEntry) (name string, ok bool) {
	if t.targetName(e) != "ERROR" {
		return "", false
	}
	data := t.data[e.target+targetDataAt : e.next]
	return cString(data[:min(len(data), chainNameLen)]), true
}

func (t *legacyTable) targetName(e legacyEntry) string {
	return cString(t.data[e.target+targetNameAt : e.target+targetDataAt])
}

// continuation returns the offset at which an entry lets a packet go on that it matches: that of another chain, or of the next entry for a
// rule without a target. ok is false if it has a verdict or a target of its own.
func (t *legacyTable) continuation(e legacyEntry) (at int, ok bool) {
	if t.data[e.target+targetNameAt] != 0 { // the standard target has no name
		return 0, false
	}
	verdict := int32(binary.NativeEndian.Uint32(t.data[e.target+targetDataAt:]))
	return int(verdict), verdict >= 0
}

// chainNames returns the names of all chains.
func (t *legacyTable) chainNames() []string {
	names := make([]string, len(t.chains))
	for i, c := range t.chains {
		names[i] = c.name
	}
	return names
}

// contents returns what a plan is made from. The handle of a rule is the number of its entry.
func (t *legacyTable) contents() (contents, error) {
	c := contents{table: t.name, chains: t.chainNames()}
	starts := make(map[int]string, len(t.chains)) // by the offset of their first entry: names
	for _, chain := range t.chains {
		starts[t.entries[chain.first].at] = chain.name
	}
	for _, chain := range t.chains {
		if ownedChain(t.name, chain.name) {
			continue
		}
		for i := chain.first; i < chain.last; i++ {
			e := t.entries[i]
			at, ok := t.continuation(e)
			if !ok || at == e.next {
				continue
			}
			target, ok := starts[at]
			if !ok {
				return c, fmt.Errorf("%w: rule at %d of chain %s goes to %d, which is no chain", errEntries, e.at, chain.name, at)
			}
			c.rules = append(c.rules, rule{chain: chain.name, target: target, handle: uint64(i)})
		}
	}
	return c, nil
}

func cString(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	return s
}
