package packet

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/test/must"
	"github.com/nftproxy/nftproxy/test/script"
)

// breakage is a row of testdata/breaks.yaml: something that an operator can
// find broken, and what the command of the product answers.
type breakage struct {
	Name string
	// Break is what is broken.
	Break string
	// Setup has the steps of a script that break a cluster with the Services
	// web and one. Files are its files.
	Setup string
	Files map[string]string
	// Command is what an operator runs on node1. Exit is its exit code.
	Command string
	Exit    int
	// Code is the code that the command prints in brackets. Its remedy is in
	// docs/troubleshooting.md.
	Code string
	// Cause is a regular expression for what the command prints.
	Cause string
	// Remedy is what the command prints. With a Code or a Section, it is in
	// docs/troubleshooting.md: the remedy of the code, or in the section.
	Remedy, Section string
}

// TestBreaks breaks a cluster in each way of testdata/breaks.yaml. The command
// must name the cause and the remedy.
func TestBreaks(t *testing.T) {
	text, err := os.ReadFile("testdata/breaks.yaml")
	must.NoError(t, err)
	var rows struct {
		Services string
		Breaks   []breakage
	}
	must.NoError(t, yaml.UnmarshalStrict(text, &rows))
	page, err := os.ReadFile("../../docs/troubleshooting.md")
	must.NoError(t, err)
	dir, byName := t.TempDir(), map[string]*breakage{}
	for i := range rows.Breaks {
		b := &rows.Breaks[i]
		if documented := b.documented(page); documented != "" && !strings.Contains(documented, b.Remedy) {
			t.Errorf("%s: docs/troubleshooting.md has %q, want %q", b.Name, documented, b.Remedy)
		}
		if byName[b.Name] != nil || b.Name == "" || b.Break == "" || b.Cause == "" || b.Remedy == "" {
			t.Errorf("row %d, %q: want a name of its own, a break, a cause and a remedy", i, b.Name)
		}
		byName[b.Name] = b
		steps := fmt.Sprintf("# %s\ncluster\napply services.yaml\n%sdiagnosed %s\n-- services.yaml --\n%s",
			b.Break, b.Setup, b.Name, rows.Services)
		for _, name := range slices.Sorted(maps.Keys(b.Files)) {
			steps += fmt.Sprintf("-- %s --\n%s", name, b.Files[name])
		}
		must.NoError(t, os.WriteFile(filepath.Join(dir, b.Name+".txtar"), []byte(steps), 0o644))
	}
	if len(rows.Breaks) < 30 {
		t.Errorf("got %d breaks, want 30", len(rows.Breaks))
	}
	suite := storySuite(func(s *story) map[string]any {
		return map[string]any{
			// runs the command of a break.
			"diagnosed": func(name string) (text string) {
				eventually(s.t, name, func() (err error) {
					text, err = s.diagnose(byName[name])
					return err
				})
				return text
			},
			"second-proxy": s.startSecond, "deaf": s.deaf,
		}
	})
	suite.Dir = dir
	script.Run(t, suite)
}

// diagnose runs the command of a break.
func (s *story) diagnose(b *breakage) (text string, err error) {
	args, ok := strings.CutPrefix(b.Command, "nftproxy ")
	if !ok {
		return "", fmt.Errorf("the command %q is not nftproxy", b.Command)
	}
	out, err := s.nftproxy(s.t, strings.Fields(args)...).CombinedOutput()
	exit := 0
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		exit = failed.ExitCode()
	} else if err != nil {
		return "", err
	}
	want := []string{b.Cause}
	switch {
	case b.Code != "":
		want = append(want, `\[`+b.Code+`\]`)
	case b.Section == "":
		want = append(want, regexp.QuoteMeta(b.Remedy))
	}
	for _, pattern := range want {
		if !regexp.MustCompile("(?m)" + pattern).Match(out) {
			return "", fmt.Errorf("no match for %q in\n%s", pattern, out)
		}
	}
	if exit != b.Exit {
		return "", fmt.Errorf("exit code %d, want %d:\n%s", exit, b.Exit, out)
	}
	return string(out), nil
}

// documented returns the part of docs/troubleshooting.md that has the remedy,
// "" if the command prints it.
func (b *breakage) documented(page []byte) string {
	pattern := "(?ms)^##+ " + regexp.QuoteMeta(b.Section) + "$(.*?)^##"
	switch {
	case b.Code != "":
		pattern = "(?m)^\\| `" + b.Code + "` \\|.*\\| (.*) \\|$"
	case b.Section == "":
		return ""
	}
	if found := regexp.MustCompile(pattern).FindSubmatch(page); found != nil {
		return string(found[1])
	}
	return "no " + pattern
}

// startSecond starts another proxy on node1, in a container of its own, without
// Services.
func (s *story) startSecond() {
	p := newProxy(s.env.T, s.Node1.Namespace, "node1", append(defaultFlags(),
		"--healthz-bind-address", "127.0.0.1:10266", "--metrics-bind-address", "127.0.0.1:10259")...)
	p.start(s.t)
}

// deaf listens at a port of pods until the end of the script. The kernel
// accepts connections, and no process answers.
func (s *story) deaf(port uint16, pods ...string) {
	for _, name := range pods {
		pod := s.origin(name).Namespace
		for _, addr := range pod.Addrs() {
			l, err := pod.Listen("tcp", netip.AddrPortFrom(addr, port))
			must.NoError(s.t, err)
			s.env.T.Cleanup(func() { l.Close() })
		}
	}
}
