package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nftproxy/nftproxy/test/script"
)

const name = "kubectl-nftproxy"

// TestMain makes the test program the plugin if it has its name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == name {
		main()
	}
	os.Exit(m.Run())
}

// fakeKubectl is a program that lists two nodes, a and b. In the pod of a node
// it runs the file with its name.
const fakeKubectl = `#!/bin/sh
pod='{"metadata": {"name": "pod-%s"}, "spec": {"nodeName": "%s", "containers": [{"name": "kube-proxy"}]}}'
case "$*" in
*get*pod\ gone*) echo 'Error from server (NotFound): pods "gone" not found' >&2; exit 1 ;;
*get*pod\ *) printf 'b 10.244.2.9' ;;
*get*pods*) printf "{\"items\": [$pod, $pod]}" a a b b ;;
*pod-a*) . ./a ;;
*) . ./b ;;
esac
`

// TestScripts runs the scripts about the plugin, which exec finds.
func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{Setup: func(e *script.Env) (map[string]script.Command, error) {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		bin := e.T.TempDir()
		e.Setenv("PATH", bin+":"+os.Getenv("PATH"))
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			return nil, err
		}
		return nil, os.WriteFile(filepath.Join(bin, "kubectl"), []byte(fakeKubectl), 0o755)
	}})
}
