package leftovers

import (
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
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
)

// Programs of iptables that add rules while tables are replaced lose none of them: neither those that take the same lock, nor those
// that take another one, as in a container with a /run of its own.
func TestRemoveFromLegacyWhileOthersAddRules(t *testing.T) {
	for name, file := range map[string]string{"same lock": xtablesLock, "another lock": filepath.Join(t.TempDir(), "lock")} {
		t.Run(name, func(t *testing.T) {
			newNamespace(t)
			t.Setenv("XTABLES_LOCKFILE", file) // of iptables
			iptables(t, nft.IPv4, "legacy", "-restore", testdata(t, nft.IPv4, "-without"))
			kube := kubeRules(50, 20)
			script := `i=0
while [ $i -lt 150 ]; do
	if "$0" -w 5 -t nat -A DOCKER -p tcp --dport $i -j ACCEPT 2>/dev/null; then i=$((i+1)); fi
done`
			path, err := exec.LookPath("iptables-legacy")
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("sh", "-c", script, path)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- cmd.Wait() }()
			rounds := 0
			for running := true; running; rounds++ {
				iptables(t, nft.IPv4, "legacy", "-restore", kube, "--noflush", "--wait=5")
				if _, err := Remove(quiet); err != nil && (file == xtablesLock || !errors.Is(err, errCounters) && !errors.Is(err, unix.EAGAIN)) {
					t.Fatal(err)
				}
				select {
				case err := <-done:
					if err != nil {
						t.Fatal(err)
					}
					running = false
				default:
				}
			}
			remove(t)
			got := iptables(t, nft.IPv4, "legacy", "-save", "", "-t", "nat")
			for i := range 150 {
				if rule := fmt.Sprintf("-A DOCKER -p tcp -m tcp --dport %d -j ACCEPT\n", i); !strings.Contains(got, rule) {
					t.Errorf("after %d rounds, this is missing: %s", rounds, rule)
				}
			}
			if strings.Contains(got, ":KUBE-SERVICES") || rounds < 2 {
				t.Errorf("after %d rounds there is\n%s", rounds, got)
			}
		})
	}
}

// kubeRules returns rules of kube-proxy for iptables-restore: services with so many endpoints each.
func kubeRules(services, endpoints int) string {
	var chains, rules strings.Builder
	chains.WriteString("*nat\n:KUBE-SERVICES - [0:0]\n")
	rules.WriteString("-A PREROUTING -j KUBE-SERVICES\n-A OUTPUT -j KUBE-SERVICES\n")
	for i := range services {
		service := "KUBE-SVC-" + hash(i)
		fmt.Fprintf(&chains, ":%s - [0:0]\n", service)
		fmt.Fprintf(&rules, "-A KUBE-SERVICES -d 10.%d.%d.%d/32 -p tcp -m tcp --dport 80 -j %s\n", 100+i>>16, i>>8&255, i&255, service)
		for j := range endpoints {
			endpoint := "KUBE-SEP-" + hash(i*endpoints+j)
			fmt.Fprintf(&chains, ":%s - [0:0]\n", endpoint)
			fmt.Fprintf(&rules, "-A %s -j %s\n-A %s -p tcp -j DNAT --to-destination 10.244.%d.%d:80\n", service, endpoint, endpoint, i>>8&255, i&255)
		}
	}
	return chains.String() + rules.String() + "COMMIT\n"
}

// hash returns a different text of 16 letters for each number.
func hash(i int) string {
	b := []byte("AAAAAAAAAAAAAAAA")
	for at := len(b) - 1; i > 0; at, i = at-1, i/26 {
		b[at] += byte(i % 26)
	}
	return string(b)
}

// The kernel refuses to replace a table of another number of entries than was read.
func TestReplaceWhatOthersChanged(t *testing.T) {
	newNamespace(t)
	load(t, nft.IPv4, "legacy", "")
	s, err := openLegacy(nft.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	table, _, err := s.plan("nat")
	if err != nil {
		t.Fatal(err)
	}
	iptables(t, nft.IPv4, "legacy", "", "", "-w", "-t", "nat", "-A", "DOCKER", "-j", "ACCEPT")
	before := saved(t, nft.IPv4, "legacy")
	if _, err := s.replace(table, len(table.entries)); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("error is %v", err)
	}
	if after := saved(t, nft.IPv4, "legacy"); after != before {
		t.Errorf("what was refused changed the table to\n%s", after)
	}
}

// No packet that passes while tables are replaced is missing in the counters of others' rules.
func TestRemoveFromLegacyCountsOn(t *testing.T) {
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
					if _, err := conn.Write([]byte("x")); err == nil { // nobody listens, which the next one to write is told
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
			if got := iptables(t, family, "legacy", "-save", "", "-c", "-t", "filter"); sent.Load() < 1000 || !strings.Contains(got, want) {
				t.Errorf("sent are %d packets; counted\n%s", sent.Load(), got)
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
		t.Errorf("file is %v, %v", info, err)
	}
	if _, err := lock(quiet, file, 30*time.Millisecond); err == nil || !strings.Contains(err.Error(), "lock "+file+": another program has held it for 30ms") {
		t.Errorf("error is %v", err)
	}
	if _, err := exec.Command("flock", "--nonblock", file, "true").Output(); err == nil {
		t.Error("another program gets the lock")
	}
	ctx, cancel := context.WithCancel(quiet)
	cancel()
	if _, err := lock(ctx, file, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v", err)
	}

	time.AfterFunc(30*time.Millisecond, unlock)
	unlock, err = lock(quiet, file, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	unlock()

	for _, missing := range []string{filepath.Join(file, "below a file"), filepath.Join(t.TempDir(), "missing", "lock"), t.TempDir()} {
		unlock, err := lock(quiet, missing, 0)
		if err != nil {
			t.Fatalf("%s: %v", missing, err)
		}
		unlock()
	}
}

// Tables are changed under iptables' lock; where nothing is to be removed, nobody is waited for.
func TestRemoveFromLegacyWhileOthersLock(t *testing.T) {
	newNamespace(t)
	load(t, nft.IPv4, "legacy", "")
	load(t, nft.IPv6, "legacy", "-without")
	before := saved(t, nft.IPv4, "legacy")
	unlock, err := lock(quiet, xtablesLock, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	impatient, cancel := context.WithCancel(quiet)
	cancel()
	for _, name := range tables {
		if done, err := removeFromLegacyTable(impatient, nft.IPv4, name); !errors.Is(err, context.Canceled) || !done.empty() {
			t.Errorf("table %s: done %v, %v", name, done, err)
		}
		if _, err := removeFromLegacyTable(impatient, nft.IPv6, name); err != nil {
			t.Errorf("table %s: %v", name, err)
		}
	}
	unlock()
	if after := saved(t, nft.IPv4, "legacy"); after != before {
		t.Errorf("what could not be locked changed to\n%s", after)
	}
}

// What the kernel never hands out is no reason to write anything.
func TestDecodeInvalidTable(t *testing.T) {
	newNamespace(t)
	load(t, nft.IPv4, "legacy", "")
	s, err := openLegacy(nft.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	valid, todo, err := s.plan("nat")
	if err != nil {
		t.Fatal(err)
	}
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
		"cut":                     func(_, data []byte) []byte { return data[:len(data)-1] },
		"cut in an entry":         func(_, data []byte) []byte { return data[:len(data)-100] },
		"entry without length":    func(_, data []byte) []byte { ne.PutUint16(data[90:], 0); return data },
		"target out of the entry": func(_, data []byte) []byte { ne.PutUint16(data[88:], ne.Uint16(data[90:])-8); return data },
		"target in the entry":     func(_, data []byte) []byte { ne.PutUint16(data[88:], 8); return data },
		"entries of no chain":     func(info, data []byte) []byte { ne.PutUint32(info[infoHooksAt:], 0); return data },
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
			t.Errorf("%s: error is %v", name, err)
		}
	}

	todo.delete = append(todo.delete, "DOCKER") // which rules go to
	if _, _, err := valid.rewrite(todo); !errors.Is(err, errEntries) {
		t.Errorf("error is %v", err)
	}
}

// A table of 80,001 chains of kube-proxy: 20,000 Services with 3 endpoints each.
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
