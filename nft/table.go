package nft

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft/nfnetlink"
	"github.com/nftproxy/nftproxy/nft/notation"
)

// Table describes a table and its program: counters, timeouts of connection
// tracking, sets, chains and rules. The rows of its sets are not part of it.
type Table struct {
	Family     Family
	Name       string
	Comment    string
	Counters   []*Counter
	CtTimeouts []*CtTimeout
	Sets       []*Set
	Chains     []*Chain
	// Owned makes the table belong to the Conn that adds it (Linux 5.12). The
	// kernel deletes the table when the Conn is closed, also if the process is
	// killed. Other programs cannot change the table.
	Owned bool
}

// nftTableOwner is NFT_TABLE_F_OWNER of linux/netfilter/nf_tables.h.
const nftTableOwner = 2

// String returns the table as nft writes it, such as `table ip kube-proxy`.
func (t *Table) String() string { return "table " + t.Family.String() + " " + t.Name }

// Chain describes a chain and its rules, or a chain in the kernel, without its
// rules. A chain with a Hook is a base chain, which packets enter from the
// network stack.
type Chain struct {
	Name  string
	Hook  *Hook
	Rules []Rule
	// Handle is the number of the chain in the kernel, which never assigns it
	// twice within a table. It is 0 for a chain that was not found there.
	Handle uint64
}

// Hook describes when packets enter a base chain.
type Hook struct {
	Type     ChainType
	Point    HookPoint
	Priority int32
	// Drop is the policy: packets that reach the end of the chain are dropped,
	// or accepted.
	Drop bool
}

// ChainType is the type of a base chain.
type ChainType string

// Types of base chains.
const (
	ChainTypeFilter ChainType = "filter"
	ChainTypeNAT    ChainType = "nat"
)

// HookPoint is a point on the path of a packet through the network stack. Its
// value is the kernel's NF_INET_* number.
type HookPoint uint32

// Hook points.
const (
	Prerouting  HookPoint = unix.NF_INET_PRE_ROUTING
	Input       HookPoint = unix.NF_INET_LOCAL_IN
	Forward     HookPoint = unix.NF_INET_FORWARD
	Output      HookPoint = unix.NF_INET_LOCAL_OUT
	Postrouting HookPoint = unix.NF_INET_POST_ROUTING
)

// String returns the hook point as nft writes it.
func (h HookPoint) String() string {
	return notation.NameOf(uint32(h), "prerouting", "input", "forward", "output", "postrouting")
}

// Priorities of base chains that nft has names for. Chains with lower
// priorities see packets first.
const (
	PriorityDstNAT int32 = -100
	PrioritySrcNAT int32 = 100
)

// Equal reports whether two chains have the same name, hook and rules.
func (c *Chain) Equal(o *Chain) bool {
	return c.Name == o.Name && c.Hook.Equal(o.Hook) && slices.EqualFunc(c.Rules, o.Rules, Rule.Equal)
}

// Equal reports whether two hooks are equal or both nil.
func (h *Hook) Equal(o *Hook) bool { return h == o || (h != nil && o != nil && *h == *o) }

// policyDrop and policyAccept are NF_DROP and NF_ACCEPT of linux/netfilter.h.
const (
	policyDrop   = 0
	policyAccept = 1
)

// Family is the address family of a table.
type Family = nfnetlink.Family

// Address families of tables. Tables of other programs can be of the family
// Inet; the package does not write such tables.
const (
	IPv4 = nfnetlink.IPv4
	IPv6 = nfnetlink.IPv6
	Inet = nfnetlink.Inet
)

// FamilyOf returns the family of addr.
func FamilyOf(addr netip.Addr) Family { return nfnetlink.FamilyOf(addr) }

// ofFamily returns the value for IPv4 or for IPv6.
func ofFamily[T any](f Family, v4, v6 T) T {
	if f == IPv4 {
		return v4
	}
	return v6
}

// Fprint writes the table with these rows as a file that `nft -f` loads. Sets
// and chains keep the order of the table; rows are sorted by key.
func (t *Table) Fprint(w io.Writer, rows []Row) error {
	bySet := make(map[string][]Row, len(t.Sets))
	for _, r := range rows {
		bySet[r.Set.Name] = append(bySet[r.Set.Name], r)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s {\n", t)
	if t.Comment != "" {
		fmt.Fprintf(&b, "\tcomment %s\n", notation.Quote(notation.Comment(t.Comment)))
	}
	if t.Owned {
		b.WriteString("\tflags owner\n")
	}
	for _, c := range t.Counters {
		printBlock(&b, "counter "+c.Name, nil)
	}
	for _, c := range t.CtTimeouts {
		printBlock(&b, "ct timeout "+c.Name, c.lines(t.Family))
	}
	for _, s := range t.Sets {
		keyword := "set "
		if s.isMap() {
			keyword = "map "
		}
		printBlock(&b, keyword+s.Name, s.lines(bySet[s.Name]))
	}
	for _, c := range t.Chains {
		printBlock(&b, "chain "+c.Name, c.lines(t.Family))
	}
	b.WriteString("}\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func printBlock(b *strings.Builder, head string, lines []string) {
	b.WriteString("\n\t" + head + " {\n")
	for _, line := range lines {
		b.WriteString("\t\t" + line + "\n")
	}
	b.WriteString("\t}\n")
}

func (s *Set) lines(rows []Row) []string {
	declaration := "type " + s.Key.String()
	switch {
	case s.Verdicts:
		declaration += " : verdict"
	case s.isMap():
		declaration += " : " + s.Data.String()
	}
	lines := []string{declaration}
	if s.Size != 0 {
		lines = append(lines, fmt.Sprintf("size %d", s.Size))
	}
	if s.Dynamic {
		lines = append(lines, "flags dynamic,timeout")
	}
	if s.Counts {
		lines = append(lines, "counter")
	}
	if c := notation.Comment(s.Comment); c != "" {
		lines = append(lines, "comment "+notation.Quote(c))
	}
	if len(rows) > 0 {
		slices.SortFunc(rows, Row.Compare)
		elements := make([]string, len(rows))
		for i, r := range rows {
			elements[i] = "\t" + r.Text()
		}
		lines = append(lines, "elements = {", strings.Join(elements, ",\n\t\t"), "}")
	}
	return lines
}

func (c *Chain) lines(f Family) (lines []string) {
	if h := c.Hook; h != nil {
		line := fmt.Sprintf("type %s hook %s priority %d;", h.Type, h.Point, h.Priority)
		if h.Drop {
			line += " policy drop;"
		}
		lines = append(lines, line)
	}
	for _, r := range c.Rules {
		lines = append(lines, r.Text(f))
	}
	return lines
}
