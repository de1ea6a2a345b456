package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator"
	"github.com/nftproxy/nftproxy/test/script"
	"github.com/nftproxy/nftproxy/test/tabletest"
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
// the shell until it succeeds, listen ADDRESS:PORT occupies a port, and get
// ADDRESS:PORT PATH TEXT asks for a page until its status and text contain
// TEXT.
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
			"until": until, "get": get,
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

// get asks for a page until the answer contains a text. It connects in the
// thread of the script.
func get(at, path, text string) (answer string, err error) {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if answer, err = page(at, path); err == nil && strings.Contains(answer, text) {
			return answer, nil
		}
	}
	return "", fmt.Errorf("got %q, %w, want %s", answer, err, text)
}

func page(at, path string) (string, error) {
	conn, err := net.Dial("tcp", at)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.0\r\n\r\n", path); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	return string(answer), err
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
