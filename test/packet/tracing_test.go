package packet

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator/trace"
	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/must"
)

// tracingSteps returns the steps of nftproxy trace in the background.
func (s *story) tracingSteps() map[string]any {
	return map[string]any{
		// starts nftproxy trace on node1.
		"tracing": func(name string, args ...string) {
			s.tracings[name] = s.startTrace(s.env.T, args...)
		},
		// prints the next packets of a trace, or all.
		"packets": func(name, number string) (text string) {
			r := s.tracings[name]
			for n := 0; number == "all" && r.packets.More() || number != "all" && fmt.Sprint(n) != number; n++ {
				p := r.next(s.t)
				text += fmt.Sprintf("%v -> %v %s %s, %d steps: %s\n", p.Source, p.Destination, p.Protocol,
					p.ServicePort, len(p.Steps), p.Answer)
				if p.Reply != nil {
					text += fmt.Sprintf("reply: %s\n", p.Reply)
				}
			}
			return text
		},
		// ends a trace, with INT or KILL by a signal, and prints the exit code
		// and its log.
		"end-trace": func(name string, signal ...string) string {
			r := s.tracings[name]
			switch {
			case slices.Contains(signal, "INT"):
				r.cmd.Process.Signal(os.Interrupt)
			case slices.Contains(signal, "KILL"):
				r.cmd.Process.Kill()
			}
			return fmt.Sprintf("exit code %d\n%s", r.wait(s.t), r.logged(s.t))
		},
	}
}

// tracing is a running `nftproxy trace`.
type tracing struct {
	cmd     *lab.Cmd
	packets *json.Decoder
	log     string // file
}

// startTrace starts `nftproxy trace` on node1 and waits until it traces
// packets.
func (c *cluster) startTrace(t testing.TB, args ...string) *tracing {
	t.Helper()
	cmd := c.nftproxy(t, append([]string{"trace", "-o", "json"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdout, err := cmd.StdoutPipe()
	must.NoError(t, err)
	r := &tracing{cmd: cmd, packets: json.NewDecoder(stdout), log: filepath.Join(t.TempDir(), "log")}
	log, err := os.Create(r.log)
	must.NoError(t, err)
	defer log.Close()
	cmd.Stderr = log
	must.NoError(t, cmd.Start())
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
	must.NoError(t, err)
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
