package stage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/nft"
	"github.com/nftproxy/nftproxy/test/lab"
)

// Node is a namespace with a proxy.
type Node struct {
	Proxy string
	Pod   *lab.Pod
	// Process is the proxy. It is nil while the proxy does not run.
	Process *lab.Process
	// Config is what Start starts.
	Config lab.ProcessConfig

	conn *nft.Conn
}

// NewNode returns a node without rules. The API has a Node object for it. The
// proxy gets further flags. After an error, Close removes the node.
func (s *Stage) NewNode(ctx context.Context, proxy string, flags ...string) (*Node, error) {
	program, err := s.programs.proxy(proxy)
	if err != nil {
		return nil, err
	}
	s.nodes++
	pod, err := s.Lab.Node1.AddPod(fmt.Sprintf("proxy%d", s.nodes))
	if err != nil {
		return nil, err
	}
	file := filepath.Join(s.Dir, pod.Name)
	configuration := s.Cluster.Configuration(program.mode, pod.Name, "clusterCIDR: "+ClusterCIDR)
	n := &Node{Proxy: proxy, Pod: pod, Config: lab.ProcessConfig{
		Log: file + ".log", Program: program.path,
		Args: slices.Concat(program.flags, flags, []string{"--config=" + file + ".conf"}),
	}}
	err = errors.Join(
		os.WriteFile(file+".conf", []byte(configuration), 0o600), s.Cluster.CreateNode(ctx, pod.Namespace),
		pod.Do(func() (err error) { n.conn, err = nft.Open(); return err }))
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", pod.Name, err)
	}
	return n, nil
}

// Start starts the proxy.
func (n *Node) Start(ctx context.Context) (err error) {
	n.Process, err = n.Pod.StartProcess(ctx, n.Config)
	return err
}

// Stop ends the proxy. Its table stays.
func (n *Node) Stop() {
	if n.Process != nil {
		n.Process.End(syscall.SIGTERM)
		n.Process = nil
	}
}

// Remove ends the proxy and removes the namespace.
func (n *Node) Remove() error {
	n.Stop()
	return errors.Join(n.conn.Close(), n.Pod.Remove())
}

// ErrLate means that a proxy did not write all Services in time.
var ErrLate = errors.New("not all Services are written")

// AwaitProgrammed waits until both families have a base chain, and all
// frontends a row. It returns when the transaction was committed that
// completed this, to 2 ms.
func (n *Node) AwaitProgrammed(frontends []netip.AddrPort) (time.Time, error) {
	const (
		period = 2 * time.Millisecond
		limit  = 10 * time.Minute
	)
	last := slices.Clone(frontends)
	slices.Reverse(last) // most proxies write the last Service last
	var seen uint32
	for end := time.Now().Add(limit); time.Now().Before(end); {
		generation, err := n.conn.Generation()
		if err != nil {
			return time.Time{}, err
		}
		if at := time.Now(); generation != seen {
			seen = generation
			if is, err := n.programmed(last); is || err != nil {
				return at, err
			}
		}
		if err := n.Process.Pause(period); err != nil {
			return time.Time{}, err
		}
	}
	return time.Time{}, fmt.Errorf("%w by %s after %s", ErrLate, n.Proxy, limit)
}

// programmed compares what the tables of all proxies in nftables mode have in
// common: their name, the chain nat-prerouting and a row for each frontend. In
// iptables mode (iptables-nft), KUBE-SERVICES has a rule for each frontend, and
// one more that jumps to KUBE-NODEPORTS. In IPVS mode, rules of iptables are
// written after the virtual servers of all frontends.
func (n *Node) programmed(frontends []netip.AddrPort) (bool, error) {
	switch n.Proxy {
	case IPVS:
		var table []byte
		err := n.Pod.Do(func() (err error) { table, err = os.ReadFile("/proc/thread-self/net/ip_vs"); return err })
		return bytes.Count(table, []byte("\nTCP ")) >= len(frontends), err
	case IPTables:
		rules, err := n.conn.RuleIDs(&nft.Table{Family: nft.IPv4, Name: "nat"}, "KUBE-SERVICES")
		return len(rules) > len(frontends), err
	}
	for _, family := range []nft.Family{nft.IPv6, nft.IPv4} {
		chain, ok, err := n.conn.FindChain(&nft.Table{Family: family, Name: "kube-proxy"}, "nat-prerouting")
		if err != nil || !ok || chain.Hook == nil {
			return false, err
		}
	}
	for some := range slices.Chunk(frontends, 256) {
		// A missing row takes a request of its own, so look for one row first.
		for _, rows := range [][]netip.AddrPort{some[:1], some} {
			if n, err := n.rows(rows); err != nil || n < len(rows) {
				return false, err
			}
		}
	}
	return true, nil
}

// rows returns how many of these TCP frontends have a row.
func (n *Node) rows(frontends []netip.AddrPort) (count int, err error) {
	set := &nft.Set{
		Name: "service-ips", Key: nft.Types(nft.TypeIPv4Addr, nft.TypeInetProto, nft.TypeInetService), Verdicts: true,
	}
	if n.Proxy == Product || n.Proxy == Counting || n.Proxy == NoRetry {
		set.Name, set.Verdicts, set.Data = "service-classes", false, nft.Types(nft.TypeClassID)
	}
	var rows []nft.Row
	for _, f := range frontends {
		key := nft.Tuple{}.Addr(f.Addr()).Proto(unix.IPPROTO_TCP).Port(f.Port())
		rows = append(rows, nft.Row{Set: set, Key: key})
	}
	found, err := n.conn.FindRows(&nft.Table{Family: nft.IPv4, Name: "kube-proxy"}, rows)
	for _, row := range found {
		if row.Set != nil {
			count++
		}
	}
	return count, err
}

// The proxies, as results and flags name them.
const (
	Upstream = "kube-proxy 1.37.2"
	IPTables = "kube-proxy in iptables mode"
	IPVS     = "kube-proxy in ipvs mode"
	Product  = "nftproxy"
	// Counting is nftproxy that counts the connections to each Service.
	Counting = "nftproxy with --service-metrics=all"
	// NoRetry is nftproxy whose connections keep the first endpoint.
	NoRetry = "nftproxy with --retry-after=0"
)

// AddSubjects adds the flag that selects the proxies to measure.
func AddSubjects(flags *pflag.FlagSet, to *[]string) {
	flags.StringSliceVar(to, "subjects", []string{Upstream, Product},
		fmt.Sprintf("Proxies to measure. There are also %q, %q, %q and %q.", Counting, NoRetry, IPTables, IPVS))
}

// Programs are the programs that benchmarks run.
type Programs struct {
	// Folder has etcd, kube-apiserver and kube-proxy; test/apiserver/build
	// makes it.
	Folder string
	// Product is the program of nftproxy.
	Product string
}

// InRepository returns the programs that the Makefile builds, given the folder
// of the repository.
func InRepository(root string) Programs {
	return Programs{Folder: filepath.Join(root, ".cache/apiserver"), Product: filepath.Join(root, "bin/kube-proxy")}
}

// program is a program with the mode and the flags of a proxy.
type program struct {
	path, mode string
	flags      []string
}

func (p Programs) proxy(name string) (program, error) {
	upstream := filepath.Join(p.Folder, "kube-proxy")
	found, ok := map[string]program{
		Product:  {path: p.Product, mode: "nftables"},
		Counting: {path: p.Product, mode: "nftables", flags: []string{"--service-metrics=all"}},
		NoRetry:  {path: p.Product, mode: "nftables", flags: []string{"--retry-after=0"}},
		Upstream: {path: upstream, mode: "nftables"},
		IPTables: {path: upstream, mode: "iptables"},
		IPVS:     {path: upstream, mode: "ipvs"},
	}[name]
	if !ok {
		return found, fmt.Errorf("unknown proxy %q", name)
	}
	return found, nil
}

// Versions returns the versions of proxies.
func (p Programs) Versions(proxies []string) (map[string]string, error) {
	all := map[string]string{}
	for _, proxy := range proxies {
		program, err := p.proxy(proxy)
		if err != nil {
			return nil, err
		}
		out, err := exec.Command(program.path, "--version").Output()
		if err != nil {
			return nil, fmt.Errorf("version of %s: %w", proxy, err)
		}
		all[proxy] = strings.TrimSpace(string(out))
	}
	return all, nil
}
