package socket

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// A process can program a network namespace that belongs to its user namespace
// or to a descendant.
func TestCanProgram(t *testing.T) {
	run := func(args ...string) (process string) {
		t.Helper()
		cmd := exec.Command(args[0], append(args[1:], "sh", "-c", "echo; exec sleep 600")...)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatalf("%s: %v", strings.Join(args, " "), err)
		}
		return fmt.Sprintf("/proc/%d", cmd.Process.Pid)
	}
	own := run("unshare", "--user", "--map-root-user", "--net")
	for _, test := range []struct {
		name, process string
		want          bool
	}{
		{"the network namespace of its user namespace", own, true},
		{"namespace of a descendant", run("nsenter", "--net="+own+"/ns/net"), true},
		{"namespace of an ancestor", run("unshare", "--user", "--map-root-user"), false},
		{"namespace of its user namespace, without the capability",
			run("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin"), false},
		{"no process", "/proc/0", false},
	} {
		if got := canProgram(test.process); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}
