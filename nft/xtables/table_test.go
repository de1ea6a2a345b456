package xtables

import (
	"encoding/binary"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab/nstest"
	"github.com/nftproxy/nftproxy/test/must"
)

const rules = `*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:DOCKER - [0:0]
:GONE - [0:0]
:GONE-2 - [0:0]
-A PREROUTING -j GONE
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A OUTPUT -j GONE
-A OUTPUT -g DOCKER
-A DOCKER -p tcp -m tcp --dport 8080 -j DNAT --to-destination 10.0.0.1
-A GONE -p tcp -m tcp --dport 80 -j GONE-2
-A GONE-2 -p tcp -j DNAT --to-destination 10.0.0.2
COMMIT
`

// sample loads the rules into a new network namespace, which ends with the
// thread of the test. It returns the table nat, and the deletion of the chains
// GONE and GONE-2.
func sample(t *testing.T) (*socket, *Table, Deletion) {
	t.Helper()
	nstest.Enter(t)
	run(t, rules, "iptables-legacy-restore")
	s, err := open(nft.IPv4)
	must.NoError(t, err)
	t.Cleanup(s.close)
	table, d, err := s.readAndChoose("nat", gone)
	must.NoError(t, err)
	return s, table, d
}

func gone(t *Table) (Deletion, error) {
	d := Deletion{Rules: make(map[string][]int), Chains: []string{"GONE", "GONE-2"}}
	for _, chain := range t.Chains() {
		rules, err := t.Rules(chain)
		if err != nil {
			return d, err
		}
		for i, r := range rules {
			if r.Target() == "GONE" {
				d.Rules[chain] = append(d.Rules[chain], i)
			}
		}
	}
	return d, nil
}

// run runs a program in the network namespace of the test.
func run(t *testing.T, input, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v: %v", name, args, err)
	}
	return string(out)
}

// Delete deletes rules and chains, and nothing else. It begins again if
// another program changes the table without the lock.
func TestDelete(t *testing.T) {
	sample(t)
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock"))
	const added = "-A DOCKER -j ACCEPT\n"
	calls := 0
	choose := func(table *Table) (Deletion, error) {
		d, err := gone(table)
		if calls++; calls == 2 {
			run(t, "", "iptables-legacy", strings.Fields("-t nat "+added)...)
		}
		return d, err
	}
	must.NoError(t, Delete(t.Context(), nft.IPv4, "nat", choose))
	var got []string
	want := []string{added}
	for line := range strings.Lines(rules) {
		if strings.HasPrefix(line, "-") && !strings.Contains(line, "GONE") {
			want = append(want, line)
		}
	}
	for line := range strings.Lines(run(t, "", "iptables-legacy-save", "-t", "nat")) {
		if strings.HasPrefix(line, "-") || strings.Contains(line, "GONE") {
			got = append(got, line)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestGoto(t *testing.T) {
	_, table, _ := sample(t)
	rules, err := table.Rules("OUTPUT")
	var got []string
	for _, r := range rules {
		got = append(got, r.Text(nft.IPv4))
	}
	if want := []string{"jump GONE", "goto DOCKER"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got rules %q, %v; want %q", got, err, want)
	}
}

// A replacement that the kernel refuses leaves the table as it was.
func TestRefusedReplacement(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, table *Table)
		want   error
	}{
		"another number of entries": {
			func(t *testing.T, _ *Table) {
				run(t, "", "iptables-legacy", "-w", "-t", "nat", "-A", "DOCKER", "-j", "ACCEPT")
			},
			unix.EAGAIN,
		},
		"an unknown target in the middle": {
			func(_ *testing.T, table *Table) {
				i := slices.IndexFunc(table.entries, func(e entry) bool { return table.targetName(e) == "DNAT" })
				e := table.entries[i]
				copy(table.data[e.target+targetNameAt:], "UNKNOWN\x00")
			},
			unix.ENOENT,
		},
		"a jump to no entry": {
			func(_ *testing.T, table *Table) {
				i := slices.IndexFunc(table.entries, func(e entry) bool {
					_, ok := table.continuation(e)
					return ok
				})
				binary.NativeEndian.PutUint32(table.data[table.entries[i].target+targetDataAt:], 1)
			},
			unix.ELOOP,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, table, d := sample(t)
			entries := len(table.entries)
			table, _, err := table.without(d)
			must.NoError(t, err)
			c.damage(t, table)
			before := savedNAT(t)
			if _, err := s.replace(table, entries); !errors.Is(err, c.want) {
				t.Errorf("got error %v, want %v", err, c.want)
			}
			if after := savedNAT(t); !slices.Equal(after, before) {
				t.Errorf("got tables %q, want %q", after, before)
			}
		})
	}
}

// savedNAT returns the lines of the table nat without comments, which contain
// the time.
func savedNAT(t *testing.T) []string {
	t.Helper()
	lines := strings.Split(run(t, "", "iptables-legacy-save", "-t", "nat"), "\n")
	return slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "#") })
}

// A table in an unexpected format is an error before anything is written.
func TestDecodeInvalidTable(t *testing.T) {
	s, valid, d := sample(t)
	ne := binary.NativeEndian
	jump := slices.IndexFunc(valid.entries, func(e entry) bool {
		at, ok := valid.continuation(e)
		return ok && at != e.next
	})
	for name, change := range map[string]func(i *info, data []byte) []byte{
		"truncated":         func(_ *info, data []byte) []byte { return data[:len(data)-1] },
		"truncated entry":   func(_ *info, data []byte) []byte { return data[:len(data)-100] },
		"entry of length 0": func(_ *info, data []byte) []byte { ne.PutUint16(data[90:], 0); return data },
		"target after its entry": func(_ *info, data []byte) []byte {
			ne.PutUint16(data[88:], ne.Uint16(data[90:])-8)
			return data
		},
		"target before the matches": func(_ *info, data []byte) []byte { ne.PutUint16(data[88:], 8); return data },
		"entries without chain": func(i *info, data []byte) []byte {
			i.Hooks = 0
			return data
		},
		"jump into a chain": func(_ *info, data []byte) []byte {
			e := valid.entries[jump]
			at, _ := valid.continuation(e)
			ne.PutUint32(data[e.target+targetDataAt:], uint32(at)+8)
			return data
		},
	} {
		i := valid.info
		data := change(&i, slices.Clone(valid.data))
		table, err := decode(s.family, "nat", i, data)
		if err == nil {
			_, err = gone(table) // reads all rules
		}
		if !errors.Is(err, errEntries) {
			t.Errorf("%s: got error %v, want %v", name, err, errEntries)
		}
	}

	d.Chains = append(d.Chains, "DOCKER") // to which rules jump
	if _, _, err := valid.without(d); !errors.Is(err, errEntries) {
		t.Errorf("got error %v, want %v", err, errEntries)
	}
}
