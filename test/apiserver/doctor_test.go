package apiserver

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// checks are the results of nftproxy doctor by the name of the check.
type checks map[string]struct{ Check, Result, Reason string }

// doctor runs nftproxy doctor on node1.
func (w *world) doctor(command string) (checks, error) {
	out, runErr := w.Node1.Command(w.ctx(), command, "doctor", "-o", "json").Output()
	var report struct {
		Findings []struct{ Check, Result, Reason string }
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return nil, fmt.Errorf("%w: %w: %s", runErr, err, out)
	}
	found := make(checks)
	for _, f := range report.Findings {
		found[f.Check] = f
	}
	return found, nil
}

// TestDoctor shows what nftproxy doctor knows about the API server.
func TestDoctor(t *testing.T) {
	t.Parallel()
	if subjectName() != product {
		return // kube-proxy has no such command
	}
	w, _, _ := newServedWorld(t)
	w.doctorFinds(map[string]string{"api-server": "ok", "watch": "ok", "clock": "ok", "filters": "ok", "table": "ok"})
	w.must(w.APIServer.Kill())
	w.doctorFinds(map[string]string{"api-server": "fail", "watch": "ok"})
}

// doctorFinds waits until nftproxy doctor has these results on node1, by the
// name of the check.
func (w *world) doctorFinds(want map[string]string) {
	w.t.Helper()
	command := filepath.Join(w.t.TempDir(), "nftproxy")
	w.must(os.Symlink(program(product), command))
	eventually(w.t, "doctor", func() error {
		found, err := w.doctor(command)
		for check, result := range want {
			if f := found[check]; f.Result != result {
				err = fmt.Errorf("got %s %s: %s, want %s", check, f.Result, f.Reason, result)
			}
		}
		return err
	})
}
