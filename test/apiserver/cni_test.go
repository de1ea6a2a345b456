package apiserver

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/nftproxy/nftproxy/test/lab"
)

// cniFile returns the path of a file of test/cni/build: the programs and the
// manifests of flannel and MetalLB, and CNI plugins.
func cniFile(name string) string { return program(filepath.Join("..", "cni", name)) }

// startCNI starts a program of test/cni/build on a node. flag is the flag for
// its kubeconfig, which has the rights of the service account
// NAMESPACE/NAME.
func (w *world) startCNI(node *lab.Node, name, account, flag string, env, args []string) *lab.Process {
	w.t.Helper()
	folder := w.t.TempDir()
	namespace, account, _ := strings.Cut(account, "/")
	token, err := w.Token(w.ctx(), namespace, account)
	w.must(err)
	kubeconfig := filepath.Join(folder, "kubeconfig")
	w.must(w.WriteKubeconfig(kubeconfig, token))
	process, err := node.StartProcess(context.Background(), lab.ProcessConfig{
		Program: cniFile(name), Args: append(args, flag+"="+kubeconfig),
		Env: append(os.Environ(), env...), Log: filepath.Join(folder, "log"),
	})
	w.must(err)
	w.t.Cleanup(func() {
		process.End(syscall.SIGKILL)
		if w.t.Failed() {
			w.t.Logf("log of %s on %s:\n%s", name, node.Name, process.EndOfLog())
		}
	})
	return process
}
