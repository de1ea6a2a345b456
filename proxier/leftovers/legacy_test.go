package leftovers

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/nft/xtables"
	"github.com/nftproxy/nftproxy/test/must"
)

// Removals lose no rule that an iptables program adds at the same time,
// whether it takes the same lock or another one, as in a container with its
// own /run.
func TestRemoveFromLegacyDuringAdditions(t *testing.T) {
	for name, file := range map[string]string{
		"same lock":    xtables.LockFile,
		"another lock": filepath.Join(t.TempDir(), "lock"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			enter(t)
			load(t, nft.IPv4, "legacy", fileOf(nft.IPv4, "-without"))
			kube := kubeRules(20, 20)
			lock := "XTABLES_LOCKFILE=" + file // read by iptables
			additions := addRules(t, lock)
			for n := 0; n < rounds(5) || additions.count.Load() < int64(rounds(60)); n++ {
				run(t, kube, "env", lock, "iptables-legacy-restore", "--noflush", "--wait=60")
				_, err := removeLogged(t.Context())
				raced := file != xtables.LockFile && (errors.Is(err, xtables.ErrCounters) ||
					errors.Is(err, unix.EAGAIN))
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

func addRules(t *testing.T, lock string) *additions {
	t.Helper()
	const script = `i=0
while [ ! -e "$0" ]; do
	if iptables-legacy -w 5 -t nat -A DOCKER -p tcp --dport $i -j ACCEPT 2>/dev/null; then
		i=$((i+1))
		echo $i
	fi
done`
	end := filepath.Join(t.TempDir(), "end")
	cmd := exec.Command("env", lock, "sh", "-c", script, end)
	output, err := cmd.StdoutPipe()
	must.NoError(t, err)
	must.NoError(t, cmd.Start())
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

// Counters include the packets that pass while tables are replaced.
func TestRemoveFromLegacyKeepsCounters(t *testing.T) {
	for _, family := range families {
		t.Run(family.String(), func(t *testing.T) {
			t.Parallel()
			enter(t)
			load(t, family, "legacy", fileOf(family, "-without"))
			iptables(t, family, "legacy", "", "", "-I", "OUTPUT", "-p", "udp", "--dport", "9", "-j", "ACCEPT")
			conn, err := net.Dial("udp", map[nft.Family]string{nft.IPv4: "127.0.0.1:9", nft.IPv6: "[::1]:9"}[family])
			must.NoError(t, err)
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
			for n := 0; n < rounds(10) || sent.Load() < 1000; n++ {
				load(t, family, "legacy", fileOf(family, ""), "--noflush")
				remove(t)
			}
			close(stop)
			<-stopped
			want := fmt.Sprintf("[%d:", sent.Load())
			got := iptables(t, family, "legacy", "-save", "", "-c", "-t", "filter")
			if !strings.Contains(got, want) {
				t.Errorf("got\n%s\nwant a counter of all %d packets", got, sent.Load())
			}
		})
	}
}
