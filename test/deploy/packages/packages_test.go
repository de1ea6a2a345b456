package packages

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/script"
)

const repository = "../../.."

// build builds the packages of a version in a new folder.
func build(t testing.TB, version string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	cmd := exec.Command(filepath.Join(repository, "deploy/packages/build"), dir, runtime.GOARCH)
	cmd.Env = append(os.Environ(), "VERSION="+version, "SOURCE_DATE_EPOCH=1700000000")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v (make build linux builds the programs)\n%s", err, out)
	}
	return dir
}

// TestScripts builds the packages twice, which gives the same bytes. Then it
// runs the scripts about the life of a package on a machine, which has the
// packages of the versions v1.0.0 and v1.1.0 in its folder /packages. The steps
// are:
//
//	do COMMAND       runs a command of the shell on the machine
//	until COMMAND    repeats it until it succeeds
//	write FILE PATH  writes a file of the script to the machine
//
// The function fetch ADDRESS PATH of the shell prints the answer of a HTTP
// server, pid the number of the process of the proxy.
func TestScripts(t *testing.T) {
	packages, again := build(t, "v1.0.0"), build(t, "v1.0.0")
	expectEqual(t, packages, again)
	must.NoError(t, os.CopyFS(packages, os.DirFS(build(t, "v1.1.0"))))
	script.Run(t, script.Suite{Setup: func(e *script.Env) (map[string]script.Command, error) {
		m := boot(e.T, packages)
		do := func(command ...string) (string, error) { return m.run(functions + strings.Join(command, " ")) }
		return script.Steps(map[string]any{
			"do": do,
			"until": func(command ...string) (out string, err error) {
				err = m.until(func() error {
					out, err = do(command...)
					return err
				})
				return out, err
			},
			"write": func(s *script.Script, name, to string) (string, error) {
				return do("cat >" + to + " <<'END'\n" + s.ReadFile(name) + "END\n")
			},
		}), nil
	}})
}

// expectEqual checks that two folders have the same files.
func expectEqual(t *testing.T, first, second string) {
	t.Helper()
	files, err := os.ReadDir(first)
	must.NoError(t, err)
	if len(files) != 2 {
		t.Errorf("got files %v", files)
	}
	for _, f := range files {
		a, err := os.ReadFile(filepath.Join(first, f.Name()))
		must.NoError(t, err)
		b, err := os.ReadFile(filepath.Join(second, f.Name()))
		must.NoError(t, err)
		if !bytes.Equal(a, b) {
			t.Errorf("%s: the second build has other bytes", f.Name())
		}
	}
}

// functions are functions of the shell for scripts.
const functions = `
fetch() { bash -c 'exec 3<>"/dev/tcp/${0%:*}/${0##*:}" && printf "GET $1 HTTP/1.0\r\n\r\n" >&3 && cat <&3' "$@"; }
pid() { systemctl show --property=MainPID --value nftproxy; }
`
