package packages

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/test/must"
)

// machine is a copy of this machine in namespaces, with a systemd of its own.
// It ends with the test.
type machine struct{ systemd string } // its process

// boot starts a machine with a folder of packages.
func boot(t testing.TB, packages string) *machine {
	t.Helper()
	script, err := filepath.Abs("testdata/boot.sh")
	must.NoError(t, err)
	unshare := exec.Command("unshare", "--fork", "--kill-child", "--mount", "--pid", "--net", "--ipc", "--uts",
		"--cgroup", "sh", script, packages)
	unshare.Stdout, unshare.Stderr = t.Output(), t.Output()
	unshare.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGKILL, UseCgroupFD: true, CgroupFD: newCgroup(t),
	}
	must.NoError(t, unshare.Start())
	t.Cleanup(func() {
		must.NoError(t, unshare.Process.Kill())
		_ = unshare.Wait() // the signal
	})
	m := &machine{}
	m.await(t, func() error {
		m.systemd, err = childOf(unshare.Process.Pid)
		return err
	})
	m.await(t, func() error {
		_, err := m.run("systemctl is-system-running | grep -e running -e degraded")
		return err
	})
	return m
}

// newCgroup returns a descriptor of a new cgroup, which systemd regards as the
// root. It is removed after the test.
func newCgroup(t testing.TB) int {
	t.Helper()
	mounts, err := os.ReadFile("/proc/mounts")
	must.NoError(t, err)
	var root string
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); fields[2] == "cgroup2" {
			root = fields[1]
		}
	}
	path, err := os.MkdirTemp(root, "nftproxy-packages-")
	must.NoError(t, err)
	t.Cleanup(func() {
		for end := time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
			err := removeCgroup(path) // EBUSY until the processes have ended
			if err == nil || time.Now().After(end) {
				must.NoError(t, err)
				return
			}
		}
	})
	dir, err := os.Open(path)
	must.NoError(t, err)
	t.Cleanup(func() { dir.Close() })
	return int(dir.Fd())
}

// removeCgroup removes a cgroup and those below it.
func removeCgroup(path string) error {
	var all []string
	err := filepath.WalkDir(path, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append([]string{path}, all...)
		}
		return err
	})
	for _, dir := range all {
		err = errors.Join(err, syscall.Rmdir(dir))
	}
	return err
}

// childOf returns the only child of a process.
func childOf(pid int) (string, error) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	child := strings.TrimSpace(string(children))
	if err == nil && child == "" {
		err = fmt.Errorf("process %d has no child", pid)
	}
	return child, err
}

// timeout limits the time that tests wait for a condition.
const timeout = 30 * time.Second

// await calls a function until it succeeds.
func (m *machine) await(t testing.TB, f func() error) {
	t.Helper()
	must.NoError(t, m.until(f))
}

func (m *machine) until(f func() error) (err error) {
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = f(); err == nil {
			return nil
		}
	}
	return err
}

// run runs a command of the shell on the machine, and returns its output.
func (m *machine) run(command string) (string, error) {
	out, err := exec.Command("nsenter", "--all", "--target="+m.systemd, "sh", "-c", command).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	return string(out), err
}
