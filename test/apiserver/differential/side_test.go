package differential

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/random"
)

// side is a lab with one of the proxies on node1.
type side struct {
	*lab.Lab
	proxy   string
	program string
	dir     string
	control *lab.Pod
	pods    map[string]*lab.Pod
	// endpoints are the addresses of possible endpoints, by name.
	endpoints map[string][2]netip.Addr
	origins   map[string]*origin
	process   *lab.Process // nil while the proxy does not run
}

// newSide creates the lab of a proxy. All sides have equal addresses.
func newSide(t testing.TB, proxy, path string) *side {
	t.Helper()
	s := &side{
		Lab: labtest.New(t), proxy: proxy, program: path, dir: t.TempDir(), origins: map[string]*origin{},
	}
	s.control = labtest.AddPod(t, s.Node2, "control-plane")
	var err error
	if s.pods, s.endpoints, err = random.AddPods(s.Lab); err != nil {
		t.Fatal(err)
	}
	s.pods["pod1"] = labtest.AddPod(t, s.Node1, "pod1")
	if err := s.addOrigins(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	return s
}

// addOrigins adds the clients.
func (s *side) addOrigins() error {
	for i, addr := range random.SecondAddrs() {
		if err := s.Node1.AddAddr(netip.PrefixFrom(addr, s.Node1.Addrs()[i].BitLen())); err != nil {
			return err
		}
		if err := s.Client.ReplaceRoute(random.SecondServiceRanges()[i], s.Node1.Addrs()[i]); err != nil {
			return err
		}
	}
	// Endpoints of node2 answer through node1, even if it has kept the
	// client's address.
	for i, addr := range s.Client.Addrs() {
		everywhere := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}[i]
		for _, to := range []netip.Prefix{netip.PrefixFrom(addr, addr.BitLen()), everywhere} {
			if err := s.Node2.ReplaceRoute(to, s.Node1.Addrs()[i]); err != nil {
				return err
			}
		}
	}
	for name, at := range map[string]*lab.Namespace{
		"client": s.Client, "node1": s.Node1.Namespace,
		"a1": s.pods["a1"].Namespace, "pod1": s.pods["pod1"].Namespace,
	} {
		s.origins[name] = &origin{Namespace: at, arrivesOn: "eth0", isThisNode: at == s.Node1.Namespace}
	}
	// The client has more addresses, of which the kernel could choose one.
	s.origins["client"].single = [2]netip.Addr(s.Client.Addrs())
	s.origins["node1-second"] = &origin{
		Namespace: s.Node1.Namespace, single: [2]netip.Addr(random.SecondAddrs()), isThisNode: true,
	}
	for name, pool := range pools() {
		at := s.Client
		if name == "pods" {
			at = s.pods["pod1"].Namespace
		}
		s.origins[name] = &origin{Namespace: at, pool: pool, arrivesOn: "eth0"}
		if err := s.own(at, pool); err != nil {
			return fmt.Errorf("addresses %v: %w", pool, err)
		}
	}
	for name, pod := range map[string]string{"a1": "a1", "pod1": "pod1", "pods": "pod1"} {
		s.origins[name].arrivesOn = s.pods[pod].HostInterface
	}
	return nil
}

// pools returns the ranges of clients that are new in each attempt. The
// default route of nodes leads to the client.
func pools() map[string][2]netip.Prefix {
	return map[string][2]netip.Prefix{
		"outside":   {netip.MustParsePrefix("172.31.0.0/17"), netip.MustParsePrefix("fd00:31::/65")},
		"elsewhere": {netip.MustParsePrefix("172.31.128.0/17"), netip.MustParsePrefix("fd00:31:0:0:8000::/65")},
		// Pods of another node, behind the client.
		"remote pods": {netip.MustParsePrefix("10.244.3.0/24"), netip.MustParsePrefix("fd00:244:3::/64")},
		"pods":        {netip.MustParsePrefix("10.244.1.128/25"), netip.MustParsePrefix("fd00:244:1:0:8000::/65")},
	}
}

// own makes all addresses of a pool local to the client, or to a pod of
// node1.
func (s *side) own(at *lab.Namespace, pool [2]netip.Prefix) error {
	for i, prefix := range pool {
		if err := at.Own(prefix); err != nil {
			return err
		}
		if at != s.Client {
			if err := s.Node1.ReplaceRoute(prefix, at.Addrs()[i]); err != nil {
				return err
			}
		}
	}
	return at.SetSysctl("net.ipv6.ip_nonlocal_bind", "1")
}

// relay forwards connections to the address of the API server to another
// side, which has the API server.
func (s *side) relay(t testing.TB, to *side) {
	t.Helper()
	at := netip.AddrPortFrom(s.control.IPv4, apiPort)
	listener, err := s.control.Listen("tcp4", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go func() {
				defer near.Close()
				far, err := to.control.DialContext(context.Background(), "tcp4", at.String())
				if err != nil {
					return
				}
				go func() {
					io.Copy(far, near)
					far.Close()
				}()
				io.Copy(near, far)
			}()
		}
	}()
}

// start starts the proxy in a namespace without rules and flows.
func (s *side) start(ctx context.Context, config string) error {
	for _, line := range [][]string{{"nft", "flush", "ruleset"}, {"conntrack", "-F"}} {
		if out, err := s.Node1.Command(ctx, line[0], line[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", line, err, out)
		}
	}
	file := filepath.Join(s.dir, "config.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return err
	}
	var err error
	s.process, err = s.Node1.StartProcess(context.Background(), lab.ProcessConfig{
		Program: s.program, Args: []string{"--config=" + file, "-v=2"}, Log: filepath.Join(s.dir, "proxy.log"),
	})
	return err
}

// stop ends the proxy. Its rules stay.
func (s *side) stop() {
	if s.process != nil {
		s.process.End(syscall.SIGTERM)
		s.process = nil
	}
}
