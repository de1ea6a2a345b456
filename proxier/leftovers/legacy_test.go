package leftovers

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// Removals lose no rule that an iptables program adds at the same time,
// whether it takes the same lock or another one, as in a container with its
// own /run.
func TestRemoveFromLegacyDuringAdditions(t *testing.T) {
	for name, file := range map[string]string{
		"same lock":    xtablesLock,
		"another lock": filepath.Join(t.TempDir(), "lock"),
	} {
		t.Run(name, func(t *testing.T) {
			newNamespace(t)
			t.Setenv("XTABLES_LOCKFILE", file) // read by iptables
			iptables(t, nft.IPv4, "legacy", "-restore", testdata(t, nft.IPv4, "-without"))
			kube := kubeRules(50, 20)
			additions := addRules(t)
			for rounds := 0; rounds < 5 || additions.count.Load() < 100; rounds++ {
				iptables(t, nft.IPv4, "legacy", "-restore", kube, "--noflush", "--wait=5")
				_, err := removeAll(quiet)
				raced := file != xtablesLock && (errors.Is(err, errCounters) || errors.Is(err, unix.EAGAIN))
				if err != nil && !raced {
					t.Fatal(err)
				}
			}
			additions.stop()
			remove(t)
			got := iptables(t, nft.IPv4, "legacy", "-save", "", "-t", "nat")
			for i := range additions.count.Load() {
				rule := fmt.Sprintf("-A DOCKER -p tcp -m tcp --dport %d -j ACCEPT\n", i)
				if !strings.Contains(got, rule) {
					t.Errorf("rule is missing: %s", rule)
				}
			}
			if strings.Contains(got, ":KUBE-SERVICES") {
				t.Errorf("got\n%s\nwant no leftovers", got)
			}
		})
	}
}

// additions is a process that adds rules to the chain DOCKER, for port 0, 1,
// ….
type additions struct {
	count atomic.Int64 // of added rules
	stop  func()
}

func addRules(t *testing.T) *additions {
	t.Helper()
	const script = `i=0
while [ ! -e "$0" ]; do
	if iptables-legacy -w 5 -t nat -A DOCKER -p tcp --dport $i -j ACCEPT 2>/dev/null; then
		i=$((i+1))
		echo $i
	fi
done`
	end := filepath.Join(t.TempDir(), "end")
	cmd := exec.Command("sh", "-c", script, end)
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a := new(additions)
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			a.count.Add(1)
		}
	}()
	a.stop = sync.OnceFunc(func() {
		if err := os.WriteFile(end, nil, 0o600); err != nil {
			t.Error(err)
			_ = cmd.Process.Kill()
		}
		<-read
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(a.stop)
	return a
}

// kubeRules returns rules of kube-proxy in the format of iptables-restore.
// endpoints is the number per service.
func kubeRules(services, endpoints int) string {
	var chains, rules strings.Builder
	chains.WriteString("*nat\n:KUBE-SERVICES - [0:0]\n")
	rules.WriteString("-A PREROUTING -j KUBE-SERVICES\n-A OUTPUT -j KUBE-SERVICES\n")
	for i := range services {
		service := "KUBE-SVC-" + hash(i)
		fmt.Fprintf(&chains, ":%s - [0:0]\n", service)
		fmt.Fprintf(&rules, "-A KUBE-SERVICES -d 10.%d.%d.%d/32 -p tcp -m tcp --dport 80 -j %s\n",
			100+i>>16, i>>8&255, i&255, service)
		for j := range endpoints {
			endpoint := "KUBE-SEP-" + hash(i*endpoints+j)
			fmt.Fprintf(&chains, ":%s - [0:0]\n", endpoint)
			fmt.Fprintf(&rules, "-A %s -j %s\n-A %s -p tcp -j DNAT --to-destination 10.244.%d.%d:80\n",
				service, endpoint, endpoint, i>>8&255, i&255)
		}
	}
	return chains.String() + rules.String() + "COMMIT\n"
}

// hash returns 16 letters that are unique for i.
func hash(i int) string {
	b := []byte("AAAAAAAAAAAAAAAA")
	for at := len(b) - 1; i > 0; at, i = at-1, i/26 {
		b[at] += byte(i % 26)
	}
	return string(b)
}

// planSample loads the sample rules, and returns the table nat and its plan.
func planSample(t *testing.T) (*legacySocket, legacyTable, plan) {
	t.Helper()
	newNamespace(t)
	load(t, nft.IPv4, "legacy", "")
	s, err := openLegacy(nft.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	table, todo, err := s.plan("nat")
	if err != nil {
		t.Fatal(err)
	}
	return s, table, todo
}

// A replacement that the kernel refuses leaves the table as it was.
func TestRefusedReplacement(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(t *testing.T, table legacyTable)
		want   error
	}{
		"another number of entries": {
			func(t *testing.T, _ legacyTable) {
				iptables(t, nft.IPv4, "legacy", "", "", "-w", "-t", "nat", "-A", "DOCKER", "-j", "ACCEPT")
			},
			unix.EAGAIN,
		},
		"an unknown target in the middle": {
			func(_ *testing.T, table legacyTable) {
				e := table.entries[len(table.entries)/2]
				copy(table.data[e.target+targetNameAt:], "UNKNOWN\x00")
			},
			unix.ENOENT,
		},
		"a jump to no entry": {
			func(_ *testing.T, table legacyTable) {
				i := slices.IndexFunc(table.entries, func(e legacyEntry) bool {
					_, ok := table.continuation(e)
					return ok
				})
				binary.NativeEndian.PutUint32(table.data[table.entries[i].target+targetDataAt:], 1)
			},
			unix.ELOOP,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, table, todo := planSample(t)
			entries := len(table.entries)
			table, _, err := table.rewrite(todo)
			if err != nil {
				t.Fatal(err)
			}
			c.damage(t, table)
			before := saved(t, nft.IPv4, "legacy")
			if _, err := s.replace(table, entries); !errors.Is(err, c.want) {
				t.Errorf("got error %v, want %v", err, c.want)
			}
			if after := saved(t, nft.IPv4, "legacy"); after != before {
				t.Errorf("got tables\n%s\nwant\n%s", after, before)
			}
		})
	}
}

// Counters include the packets that pass while tables are replaced.
func TestRemoveFromLegacyKeepsCounters(t *testing.T) {
	for _, family := range families {
		t.Run(family.String(), func(t *testing.T) {
			newNamespace(t)
			load(t, family, "legacy", "-without")
			iptables(t, family, "legacy", "", "", "-w", "-I", "OUTPUT", "-p", "udp", "--dport", "9", "-j", "ACCEPT")
			conn, err := net.Dial("udp", map[nft.Family]string{nft.IPv4: "127.0.0.1:9", nft.IPv6: "[::1]:9"}[family])
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			var sent atomic.Int64
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for {
					select {
					case <-stop:
						return
					default:
					}
					// There is no listener. A write that returns the ICMP
					// error of the previous one sends nothing.
					if _, err := conn.Write([]byte("x")); err == nil {
						sent.Add(1)
					}
				}
			}()
			for range 20 {
				iptables(t, family, "legacy", "-restore", testdata(t, family, ""), "--noflush", "--wait=5")
				remove(t)
			}
			close(stop)
			<-stopped
			want := fmt.Sprintf("[%d:", sent.Load())
			got := iptables(t, family, "legacy", "-save", "", "-c", "-t", "filter")
			if sent.Load() < 1000 || !strings.Contains(got, want) {
				t.Errorf("got\n%s\nwant a counter of all %d packets, at least 1000", got, sent.Load())
			}
		})
	}
}

func TestLock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "xtables.lock")
	unlock, err := lock(quiet, file, 0)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o600 {
		t.Errorf("got lock file %v, error %v, want mode 0600", info, err)
	}
	want := "lock " + file + ": held by another program for 30ms"
	if _, err := lock(quiet, file, 30*time.Millisecond); err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
	if _, err := exec.Command("flock", "-n", file, "true").Output(); err == nil {
		t.Error("flock: got the lock while it was held")
	}
	ctx, cancel := context.WithCancel(quiet)
	cancel()
	if _, err := lock(ctx, file, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want %v", err, context.Canceled)
	}

	time.AfterFunc(30*time.Millisecond, unlock)
	unlock, err = lock(quiet, file, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	unlock()

	for _, unusable := range []string{
		filepath.Join(file, "below-a-file"), filepath.Join(t.TempDir(), "missing", "lock"), t.TempDir(),
	} {
		unlock, err := lock(quiet, unusable, 0)
		if err != nil {
			t.Fatalf("%s: got error %v, want none", unusable, err)
		}
		unlock()
	}
}

// Tables are changed under the lock of iptables. A table without leftovers
// needs no lock.
func TestRemoveFromLegacyWhileLocked(t *testing.T) {
	newNamespace(t)
	load(t, nft.IPv4, "legacy", "")
	load(t, nft.IPv6, "legacy", "-without")
	before := saved(t, nft.IPv4, "legacy")
	unlock, err := lock(quiet, xtablesLock, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(quiet)
	cancel()
	for _, name := range tables {
		done, err := removeFromLegacyTable(canceled, nft.IPv4, name)
		if !errors.Is(err, context.Canceled) || !done.empty() {
			t.Errorf("table %s: got plan %v, error %v, want none and %v", name, done, err, context.Canceled)
		}
		if _, err := removeFromLegacyTable(canceled, nft.IPv6, name); err != nil {
			t.Errorf("table %s without leftovers: got error %v, want none", name, err)
		}
	}
	unlock()
	if after := saved(t, nft.IPv4, "legacy"); after != before {
		t.Errorf("got tables\n%s\nwant\n%s", after, before)
	}
}

// A table in an unexpected format is an error before anything is written.
func TestDecodeInvalidTable(t *testing.T) {
	s, valid, todo := planSample(t)
	ne := binary.NativeEndian
	info := make([]byte, infoLen)
	ne.PutUint32(info[infoHooksAt:], valid.hooks)
	for hook := range hookChains {
		ne.PutUint32(info[infoEntryAt+4*hook:], uint32(valid.first[hook]))
		ne.PutUint32(info[infoUnderflowAt+4*hook:], uint32(valid.policy[hook]))
	}
	jump := slices.IndexFunc(valid.entries, func(e legacyEntry) bool {
		at, ok := valid.continuation(e)
		return ok && at != e.next
	})
	for name, change := range map[string]func(info, data []byte) []byte{
		"truncated":         func(_, data []byte) []byte { return data[:len(data)-1] },
		"truncated entry":   func(_, data []byte) []byte { return data[:len(data)-100] },
		"entry of length 0": func(_, data []byte) []byte { ne.PutUint16(data[90:], 0); return data },
		"target after its entry": func(_, data []byte) []byte {
			ne.PutUint16(data[88:], ne.Uint16(data[90:])-8)
			return data
		},
		"target before the matches": func(_, data []byte) []byte { ne.PutUint16(data[88:], 8); return data },
		"entries without chain": func(info, data []byte) []byte {
			ne.PutUint32(info[infoHooksAt:], 0)
			return data
		},
		"jump into a chain": func(_, data []byte) []byte {
			e := valid.entries[jump]
			at, _ := valid.continuation(e)
			ne.PutUint32(data[e.target+targetDataAt:], uint32(at)+8)
			return data
		},
	} {
		info := slices.Clone(info)
		table, err := decodeTable(s.targetOffset, "nat", info, change(info, slices.Clone(valid.data)))
		if err == nil {
			_, err = table.contents()
		}
		if !errors.Is(err, errEntries) {
			t.Errorf("%s: got error %v, want %v", name, err, errEntries)
		}
	}

	todo.delete = append(todo.delete, "DOCKER") // to which rules jump
	if _, _, err := valid.rewrite(todo); !errors.Is(err, errEntries) {
		t.Errorf("got error %v, want %v", err, errEntries)
	}
}

// The table has 80,001 chains of kube-proxy: 20,000 Services with 3 endpoints
// each.
func BenchmarkRemoveFromLegacy(b *testing.B) {
	newNamespace(b)
	kube := kubeRules(20000, 3)
	for b.Loop() {
		b.StopTimer()
		iptables(b, nft.IPv4, "legacy", "-restore", kube)
		b.StartTimer()
		remove(b)
	}
}
