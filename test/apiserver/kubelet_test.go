package apiserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"

	"github.com/nftproxy/nftproxy/test/lab"
)

// kubelet serves only the requests of `kubectl exec`, with the library of
// container runtimes. It implements remotecommand.Executor.
type kubelet struct {
	node *lab.Node
	// programs is the folder of the programs in all containers of the node.
	programs atomic.Pointer[string]
	// terminal reports whether the last command had a terminal.
	terminal atomic.Bool
	close    func() error
}

// startKubelet starts a kubelet on a node.
func (w *world) startKubelet(node *lab.Node, programs string) *kubelet {
	w.t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("kubelet", nil, nil)
	w.must(err)
	pair, err := tls.X509KeyPair(certificate, key)
	w.must(err)
	const kubeletPort = 10250
	listener, err := node.Listen("tcp", netip.AddrPortFrom(node.IPv4, kubeletPort))
	w.must(err)
	k := &kubelet{node: node}
	k.programs.Store(&programs)
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.serveExec)
	server := &http.Server{Handler: mux}
	k.close = server.Close
	go server.Serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}}))
	w.t.Cleanup(func() { server.Close() })
	return k
}

func (k *kubelet) serveExec(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, k, r.PathValue("pod"), "", r.PathValue("container"), r.Form["command"], options,
		time.Minute, time.Minute, remotecommand.SupportedStreamingProtocols)
}

// ExecInContainer runs a command in the network namespace of the node. Without
// the program, its error is as from containerd and runc.
func (k *kubelet) ExecInContainer(ctx context.Context, _, _, _ string, command []string, _ io.Reader,
	stdout, stderr io.WriteCloser, terminal bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	k.terminal.Store(terminal)
	program := filepath.Join(*k.programs.Load(), command[0])
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("failed to exec in container: failed to start exec \"5f2a\": OCI runtime exec failed: "+
			"exec failed: unable to start container process: exec: %q: executable file not found in $PATH: "+
			"unknown", command[0])
	}
	cmd := k.node.Command(ctx, program, command[1:]...)
	cmd.Stdout = stdout
	if stderr != nil {
		cmd.Stderr = stderr
	}
	err := cmd.Run()
	if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() > 0 {
		return exec.CodeExitError{Err: err, Code: cmd.ProcessState.ExitCode()}
	}
	return err
}
