package apiserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
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
	node *lab.Namespace
	// programs is the folder of the programs in all containers of the node.
	programs string
	// terminal reports whether the last command had a terminal.
	terminal atomic.Bool
	close    func() error
}

// startKubelet starts a kubelet on a node, which runs testdata/pod.yaml.
func (s *story) startKubelet(name, programs string) {
	pod, err := os.ReadFile("testdata/pod.yaml")
	s.must(err)
	s.apply(strings.ReplaceAll(string(pod), "$NODE", name))
	certificate, key, err := cert.GenerateSelfSignedCertKey("kubelet", nil, nil)
	s.must(err)
	pair, err := tls.X509KeyPair(certificate, key)
	s.must(err)
	const kubeletPort = 10250
	k := &kubelet{node: s.at(name), programs: programs}
	listener, err := k.node.Listen("tcp", netip.AddrPortFrom(k.node.IPv4, kubeletPort))
	s.must(err)
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.serveExec)
	server := &http.Server{Handler: mux}
	k.close = server.Close
	go server.Serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}}))
	s.t.Cleanup(func() { server.Close() })
	s.kubelets[name] = k
}

// user runs a program in the pod b1 with kubectl and the plugin in its PATH,
// and returns its output and exit code.
func (s *story) user(command []string) (string, error) {
	if s.path == "" {
		folder := s.t.TempDir()
		binary := filepath.Join(folder, "kubectl-nftproxy")
		build := osexec.Command("go", "build", "-o", binary, "./cmd/kubectl-nftproxy")
		build.Dir = repository
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
		s.must(os.Symlink(binary, filepath.Join(folder, "kubectl_complete-nftproxy")))
		s.path = "PATH=" + folder + ":" + filepath.Dir(program("kubectl")) + ":/usr/bin:/bin"
	}
	cmd := s.at("b1").Command(s.ctx(), "env", append([]string{s.path}, command...)...)
	cmd.Env = []string{"KUBECONFIG=" + s.AdminKubeconfig(), "HOME=" + s.t.TempDir()}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		return "", err
	}
	return fmt.Sprintf("%sexit code %d\n", out, cmd.ProcessState.ExitCode()), nil
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
	program := filepath.Join(k.programs, command[0])
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
