package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
	"github.com/nftproxy/nftproxy/test/script"
)

// TestMain makes the test program the program that it tests if it has the name
// of one.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "kube-proxy", operator.Name:
		main()
	}
	os.Exit(m.Run())
}

// TestScripts runs the scripts about the programs kube-proxy and nftproxy,
// which exec finds. Each has a node with two addresses. $CLUSTER is a directory
// with manifests of a few Services. The step until COMMAND repeats a command of
// the shell until it succeeds, listen ADDRESS:PORT occupies a port.
func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{Namespace: true, Setup: func(e *script.Env) (map[string]script.Command, error) {
		tabletest.NewNode(e.T)
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		bin := e.T.TempDir()
		for _, name := range []string{"kube-proxy", operator.Name} {
			if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
				return nil, err
			}
		}
		cluster, err := filepath.Abs("operator/testdata/cluster")
		e.Setenv("CLUSTER", cluster)
		e.Setenv("PATH", bin+":"+os.Getenv("PATH"))
		// The tests also run on kernels older than the program supports.
		e.Setenv("KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK", "1")
		return script.Steps(map[string]any{
			"until": until,
			"listen": func(at string) error {
				l, err := net.Listen("tcp4", at)
				if err == nil {
					e.T.Cleanup(func() { l.Close() })
				}
				return err
			},
		}), err
	}})
}

// until repeats a command of the shell until it succeeds.
func until(s *script.Script, command string) error {
	var err error
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = s.Exec("sh", "-c", command); err == nil {
			return nil
		}
	}
	return err
}
