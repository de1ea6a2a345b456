package neighbours

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/must"
)

// debian is a Debian system in the network namespace of a node: a root file
// system, and a namespace of mounts and processes. Changes of files are lost at
// the end of the test, and processes end.
type debian struct {
	at  *lab.Namespace
	pid int // of its first process, as seen here
}

// boot mounts the system and keeps it. $1 is the root file system, $2 a folder.
const boot = `set -e
mount --make-rprivate /
mount -t tmpfs tmpfs "$2"
mkdir "$2/upper" "$2/work" "$2/root"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
mount -t proc proc "$2/root/proc"
mount --rbind /sys "$2/root/sys"
mount --rbind /dev "$2/root/dev"
mount -t tmpfs tmpfs "$2/root/run"
mkdir -p "$2/root/run/dbus" "$2/root/run/lock" "$2/root/run/netns"
echo ready
exec chroot "$2/root" tail -f /dev/null
`

// newDebian starts a Debian release.
func newDebian(t *testing.T, at *lab.Namespace, release string) *debian {
	t.Helper()
	root, err := filepath.Abs(filepath.Join(roots, release))
	must.NoError(t, err)
	cmd := at.Command(context.Background(), "sh", "-c", boot, "sh", root, t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
	}
	out, err := cmd.StdoutPipe()
	must.NoError(t, err)
	must.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill() // and with it all processes of the system
		cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("boot Debian %s: got %q, %v", release, line, err)
	}
	return &debian{at, cmd.Process.Pid}
}

// run runs a shell script in the system and returns its output.
func (d *debian) run(script string) (string, error) {
	cmd := d.at.Command(context.Background(), "nsenter", "--target", strconv.Itoa(d.pid), "--mount", "--pid", "--root",
		"--wd", "--", "bash", "-ec", script)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"}
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w\n%s%s", script, err, &stdout, &stderr)
	}
	return stdout.String(), nil
}

// mustRun is run for scripts that must succeed.
func (d *debian) mustRun(t *testing.T, script string) string {
	t.Helper()
	out, err := d.run(script)
	must.NoError(t, err)
	return out
}

// version returns the version of a package.
func version(t *testing.T, release, pkg string) string {
	t.Helper()
	out, err := exec.Command("dpkg-query", "--admindir="+filepath.Join(roots, release, "var/lib/dpkg"),
		"-W", "-f", "${Version}", pkg).Output()
	if err != nil {
		t.Fatalf("version of %s: %v", pkg, err)
	}
	upstream, _, _ := strings.Cut(string(out), "-")
	if _, after, ok := strings.Cut(upstream, ":"); ok {
		upstream = after
	}
	return upstream
}
