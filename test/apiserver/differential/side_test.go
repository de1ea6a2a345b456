package differential

import (
	"context"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
	"github.com/nftproxy/nftproxy/test/must"
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
	origins   []*origin
	process   *lab.Process // nil while the proxy does not run
}

// newSide creates the lab of a proxy. All sides have equal addresses.
func newSide(t testing.TB, proxy, path string) *side {
	t.Helper()
	s := &side{Lab: labtest.New(t), proxy: proxy, program: path, dir: t.TempDir()}
	s.control = labtest.AddPod(t, s.Node2, "control-plane")
	var err error
	s.pods, s.endpoints, err = random.AddPods(s.Lab)
	must.NoError(t, err)
	s.pods["pod1"] = labtest.AddPod(t, s.Node1, "pod1")
	s.origins = s.newOrigins()
	must.NoError(t, s.route())
	t.Cleanup(s.stop)
	return s
}

// relay forwards connections to the address of the API server to another
// side, which has the API server.
func (s *side) relay(t testing.TB, to *side) {
	t.Helper()
	at := netip.AddrPortFrom(s.control.IPv4, apiPort)
	listener, err := s.control.Listen("tcp4", at)
	must.NoError(t, err)
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
func (s *side) start(t testing.TB, config string) {
	t.Helper()
	labtest.Run(t, s.Node1.Namespace, "nft", "flush", "ruleset")
	labtest.Run(t, s.Node1.Namespace, "conntrack", "-F")
	file := filepath.Join(s.dir, "config.conf")
	must.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	var err error
	s.process, err = s.Node1.StartProcess(context.Background(), lab.ProcessConfig{
		Program: s.program, Args: []string{"--config=" + file, "-v=2"}, Log: filepath.Join(s.dir, "proxy.log"),
	})
	must.NoError(t, err)
}

// stop ends the proxy. Its rules stay.
func (s *side) stop() {
	if s.process != nil {
		s.process.End(syscall.SIGTERM)
		s.process = nil
	}
}
