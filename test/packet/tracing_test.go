package packet

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/trace"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// tracing is a running `nftproxy trace`.
type tracing struct {
	cmd     *lab.Cmd
	packets *json.Decoder
	log     string // file
}

// startTrace starts `nftproxy trace` and waits until it traces packets.
func startTrace(t testing.TB, at *lab.Namespace, args ...string) *tracing {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := at.Command(context.Background(), program, append([]string{"trace", "-o", "json"}, args...)...)
	cmd.Env = append(os.Environ(), asNftproxy+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	r := &tracing{cmd: cmd, packets: json.NewDecoder(stdout), log: filepath.Join(t.TempDir(), "log")}
	log, err := os.Create(r.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
	eventually(t, "trace", func() error {
		if log := r.logged(t); !strings.Contains(log, "tracing new connections") {
			return fmt.Errorf("got %q", log)
		}
		return nil
	})
	return r
}

// logged returns the standard error.
func (r *tracing) logged(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(r.log)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// next returns the next packet.
func (r *tracing) next(t testing.TB) (p trace.Packet) {
	t.Helper()
	if err := r.packets.Decode(&p); err != nil {
		t.Fatalf("next packet: %v; %s", err, r.logged(t))
	}
	return p
}

// wait waits for the end of the command and returns its exit code.
func (r *tracing) wait(t testing.TB) int {
	t.Helper()
	if err := r.cmd.Wait(); err != nil {
		if _, exited := err.(*exec.ExitError); !exited {
			t.Fatal(err)
		}
	}
	return r.cmd.ProcessState.ExitCode()
}

// traceTables returns the names of the tables of traces at a node.
func traceTables(t testing.TB, at *lab.Namespace) (tables []string) {
	t.Helper()
	for line := range strings.Lines(labtest.Run(t, at, "nft", "list", "tables")) {
		if strings.Contains(line, "nftproxy-trace-") {
			tables = append(tables, strings.TrimSpace(line))
		}
	}
	return tables
}
