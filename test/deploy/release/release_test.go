package release

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const repository = "../../.."

// architectures are the architectures of the programs and of the image.
var architectures = []string{"amd64", "arm64"}

// environment returns an environment variable of `make release-dry-run`.
func environment(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set: run `make release-dry-run`", name)
	}
	return value
}

// file returns the path of a file of the release, which is a pattern with the
// version as VERSION.
func file(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(environment(t, "RELEASE"), strings.ReplaceAll(name, "VERSION", environment(t, "VERSION")))
}

// read returns the content of a file.
func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// run runs a command and returns its output.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	return runIn(t, nil, name, args...)
}

// runIn runs a command with further environment variables.
func runIn(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// unpack unpacks an archive of the release into a new folder.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	dir := t.TempDir()
	run(t, "tar", "-xf", archive, "-C", dir)
	return dir
}

// entries returns the names in a compressed archive, with the targets of links.
// All belong to root, and only programs may be executed.
func entries(t *testing.T, archive string) (names []string) {
	t.Helper()
	for line := range strings.Lines(run(t, "tar", "--numeric-owner", "-tvzf", archive)) {
		fields := strings.Fields(line) // mode, owner, size, date, time, name, -> and target
		mode, owner, name := fields[0], fields[1], fields[5]
		if owner != "0/0" || mode[0] == '-' && strings.Contains(mode, "x") != strings.HasPrefix(name, "kube") {
			t.Errorf("%s: got %s", archive, line)
		}
		if len(fields) > 6 {
			name += " " + fields[7]
		}
		names = append(names, name)
	}
	return names
}
