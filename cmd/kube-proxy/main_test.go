package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/kube-proxy/operator"
	"github.com/nftproxy/nftproxy/proxier/table/tabletest"
)

// TestMain makes the test program the program that it tests if it has the name
// of one.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "kube-proxy", operator.Name:
		main()
	}
	// The tests also run on kernels older than the program supports.
	os.Setenv("KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK", "1")
	os.Exit(m.Run())
}

// programs returns a directory with the program under both of its names.
func programs(t testing.TB) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"kube-proxy", operator.Name} {
		if err := os.Symlink(self, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// clusterManifests is a directory with manifests of a few Services.
const clusterManifests = "operator/testdata/cluster"

// node is a network namespace with a proxy.
type node struct {
	bin   string // the directory of the programs
	proxy *exec.Cmd
	log   *bytes.Buffer // of the proxy; complete after stop
}

// startProxy starts a proxy in the network namespace of the test. before are
// shell commands that run in a mount namespace of its own.
func startProxy(t *testing.T, before, manifests string, flags ...string) *node {
	t.Helper()
	n := &node{bin: programs(t), log: new(bytes.Buffer)}
	n.proxy = exec.Command("unshare", "--mount", "sh", "-ec", before+"\n"+`exec "$@"`, "sh",
		filepath.Join(n.bin, "kube-proxy"), "--manifests", manifests, "--hostname-override", "node1")
	n.proxy.Args = append(n.proxy.Args, flags...)
	n.proxy.Stdout, n.proxy.Stderr = n.log, n.log
	n.proxy.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.stop()
		if t.Failed() {
			t.Logf("log of kube-proxy:\n%s", n.log)
		}
	})
	return n
}

// stop ends the proxy.
func (n *node) stop() {
	if n.proxy.ProcessState == nil {
		n.proxy.Process.Signal(syscall.SIGTERM)
		n.proxy.Wait() // the log shows an error
	}
}

// nftproxy runs the command, if necessary by another program that precedes it,
// and returns its output and its exit code.
func (n *node) nftproxy(t *testing.T, by []string, args ...string) (out string, code int) {
	t.Helper()
	command := append(append(by, filepath.Join(n.bin, operator.Name)), args...)
	text, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return string(text), code
}

// A start without problems logs no warning, also in a container without
// CAP_SYS_RESOURCE. One line at its end has what is served.
func TestStartLog(t *testing.T) {
	tabletest.NewNode(t)
	n := startProxy(t, `set -- setpriv --bounding-set=-sys_resource "$@"`, "testdata/localhost",
		"--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", "veth")
	n.awaitStatus(t, 0)
	n.stop()
	served := regexp.MustCompile(`"Serving Services" version="\S+" node="node1" ` +
		`detectLocalMode="InterfaceNamePrefix" ipFamilies=\["IPv4","IPv6"\] ` +
		`services=\[\d+,\d+\] endpoints=\[\d+,\d+\] elapsed="\d+ms"`)
	warning := regexp.MustCompile(`(?m)^[WEF].*|.*([Ff]ail|[Ww]arn|OOM).*`)
	if log := n.log.String(); len(served.FindAllString(log, -1)) != 1 || warning.MatchString(log) {
		t.Errorf("got warnings %q, want none, and a line that matches %s", warning.FindAllString(log, -1), served)
	}
}

// With --watch, history and services print what changes until the user
// interrupts them.
func TestWatch(t *testing.T) {
	tabletest.NewNode(t)
	dir := t.TempDir()
	write := func(service string) {
		t.Helper()
		const manifest = "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: %s}\n" +
			"spec: {clusterIP: 10.96.0.%d, ports: [{name: http, port: 80}]}\n"
		text := fmt.Sprintf(manifest, service, 10+len(service))
		if err := os.WriteFile(filepath.Join(dir, service+".yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("web")
	n := startProxy(t, "", dir)
	n.awaitStatus(t, 0)
	for _, command := range []struct{ verb, first, then string }{
		{"history", `table +wrote the whole table`, `shop/history:http +added; frontends \+10.96.0.17:80/tcp\n`},
		{"services", `shop/web:http .*\n`, `shop/services:http +ClusterIP +10.96.0.18:80/tcp .*\n`},
	} {
		watch := exec.Command(filepath.Join(n.bin, operator.Name), command.verb, "-w")
		out, err := watch.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := watch.Start(); err != nil {
			t.Fatal(err)
		}
		text := awaitOutput(t, out, "", command.first)
		write(command.verb)
		awaitOutput(t, out, text, command.then)
		watch.Process.Signal(os.Interrupt)
		if err := watch.Wait(); err != nil {
			t.Errorf("%s: %v", command.verb, err)
		}
	}
}

// top repeats its table until the user interrupts it, and ends with a summary.
// Only a terminal gets control sequences, and lines of its width.
func TestTop(t *testing.T) {
	tabletest.NewNode(t)
	n := startProxy(t, "", "testdata/localhost")
	n.awaitStatus(t, 0)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	terminal, shown := openTerminal(t, 42, 5)
	const header = `\d\d:\d\d:\d\d  service ports: 0, connections: 0`
	for _, test := range []struct {
		stdout, out *os.File
		want        string
	}{
		{write, read, "^" + header + `[^\x1b]*EJECTED\n\n` + header + `[^\x1b]*EJECTED\n$`},
		{shown, terminal, `^\x1b\[H\x1b\[J\x1b\[H` + header + `\x1b\[K\r\n` +
			`SERVICE PORT  CONNECTIONS  NEW/S  REPLIES/\x1b\[K\r\n\x1b\[J\x1b\[H`},
	} {
		command := exec.Command(filepath.Join(n.bin, operator.Name), "top")
		var summary bytes.Buffer
		command.Stdout, command.Stderr = test.stdout, &summary
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		awaitOutput(t, test.out, "", test.want)
		command.Process.Signal(os.Interrupt)
		const want = `^in [234] s: new connections: 0, first answers: 0, at most unanswered: 0, at most ejected: 0\n$`
		if err := command.Wait(); err != nil || !regexp.MustCompile(want).Match(summary.Bytes()) {
			t.Errorf("got error %v and %q, want %s", err, &summary, want)
		}
	}
}

// openTerminal returns a pseudo terminal, and the file of a program that it
// shows.
func openTerminal(t *testing.T, width, height uint16) (terminal, program *os.File) {
	t.Helper()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(terminal.Fd())
	number, err1 := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	err2 := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	err3 := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: width, Row: height})
	program, err4 := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { errors.Join(terminal.Close(), program.Close()) })
	return terminal, program
}

// awaitOutput reads until the output matches, and returns it.
func awaitOutput(t *testing.T, out io.Reader, text, want string) string {
	t.Helper()
	wanted, data := regexp.MustCompile(want), make([]byte, 1<<16)
	for !wanted.MatchString(text) {
		n, err := out.Read(data)
		if text += string(data[:n]); err != nil {
			t.Fatalf("got %v after\n%s\nwant %s", err, text, want)
		}
	}
	return text
}

// trace ends with a summary when the user interrupts it.
func TestTraceInterrupted(t *testing.T) {
	tabletest.NewNode(t)
	n := startProxy(t, "", clusterManifests)
	n.awaitStatus(t, 0)
	var out bytes.Buffer
	trace := exec.Command(filepath.Join(n.bin, operator.Name), "trace", "--timeout", "1m")
	trace.Stdout, trace.Stderr = &out, &out
	if err := trace.Start(); err != nil {
		t.Fatal(err)
	}
	for range 1000 { // its table exists as soon as it traces
		if list, _ := exec.Command("nft", "list", "tables").Output(); bytes.Contains(list, []byte("trace")) {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	trace.Process.Signal(os.Interrupt)
	if err := trace.Wait(); err != nil || !strings.HasSuffix(out.String(), "\npackets: 0\n") {
		t.Errorf("got %v and\n%s\nwant a summary", err, &out)
	}
}

// awaitStatus waits until status has an exit code.
func (n *node) awaitStatus(t *testing.T, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		out, code := n.nftproxy(t, nil, "status")
		if code == want {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("status: got exit code %d, want %d:\n%s", code, want, out)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// wantService checks that the command reaches the proxy.
func (n *node) wantService(t *testing.T, by ...string) {
	t.Helper()
	out, code := n.nftproxy(t, by, "services", "default/web")
	if code != 0 || !strings.Contains(out, "10.96.0.10:80/tcp") {
		t.Errorf("%q services: got exit code %d:\n%s", by, code, out)
	}
}

// The command finds the proxy of its network namespace, and notices its end.
func TestSocket(t *testing.T) {
	tabletest.NewNode(t)
	n := startProxy(t, "", clusterManifests)
	n.awaitStatus(t, 0)
	n.wantService(t)
	if out, code := n.nftproxy(t, []string{"unshare", "--net"}, "status"); code != 2 {
		t.Errorf("in another network namespace: got exit code %d:\n%s", code, out)
	}
	n.stop()
	out, code := n.nftproxy(t, nil, "status")
	if code != 2 || !strings.Contains(out, "written by nftproxy, and in use") {
		t.Errorf("after the end of the proxy: got exit code %d:\n%s", code, out)
	}
	var stat syscall.Stat_t
	if err := syscall.Stat("/proc/thread-self/ns/net", &stat); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(fmt.Sprintf("/run/nftproxy/%d.sock", stat.Ino)); !os.IsNotExist(err) {
		t.Errorf("after the end of the proxy: got %v, want no socket", err)
	}
}

// The command on the node, and in the container, finds a proxy whose container
// has a file system of its own.
func TestSocketInContainer(t *testing.T) {
	tabletest.NewNode(t)
	n := startProxy(t, "mount -t tmpfs none /run", clusterManifests)
	n.awaitStatus(t, 0)
	n.wantService(t)
	n.wantService(t, "nsenter", fmt.Sprintf("--mount=/proc/%d/ns/mnt", n.proxy.Process.Pid))
}

// A proxy that cannot create the socket logs it once, and serves Services.
func TestNoSocket(t *testing.T) {
	tabletest.NewNode(t)
	n := startProxy(t, "mount -t tmpfs -o ro none /run", clusterManifests)
	for range 2000 {
		if out, _ := n.nftproxy(t, nil, "explain", "10.96.0.10:80"); strings.Contains(out, "10.244.1.5:8080") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if out, code := n.nftproxy(t, nil, "status"); code != 2 ||
		!strings.Contains(out, "written by nftproxy, and in use") {
		t.Errorf("got exit code %d:\n%s", code, out)
	}
	n.stop()
	if got := strings.Count(n.log.String(), "/run/nftproxy: read-only file system"); got != 1 {
		t.Errorf("got %d warnings, want 1", got)
	}
}
