package apiserver

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// TestConfiguration gives nftproxy and kube-proxy the same files and flags.
// Both must write the same configuration with --write-config-to, or fail.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	if subjectName() != product {
		return
	}
	c := &configurations{t: t, at: labtest.New(t).Node1.Namespace, dir: t.TempDir()}
	t.Run("values", func(t *testing.T) { c.with(t).eachValue() })
	t.Run("combinations", func(t *testing.T) { c.with(t).combinations() })
	t.Run("files", func(t *testing.T) {
		for _, file := range oddFiles() {
			c.with(t).compareFile(file)
		}
	})
	t.Run("flags", func(t *testing.T) { c.with(t).flags() })
	t.Run("only newer", func(t *testing.T) { c.with(t).onlyNewer() })
}

// configurations compares configurations.
type configurations struct {
	t   *testing.T
	at  *lab.Namespace // of the programs
	dir string
}

// with returns configurations for a subtest.
func (c *configurations) with(t *testing.T) *configurations { return &configurations{t, c.at, c.dir} }

// eachValue compares each value of each field alone, and with each mode of
// local detection the fields of the modes.
func (c *configurations) eachValue() {
	pools := pools()
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		for _, value := range pools[name] {
			c.compareFile(document(map[string]string{name: value}))
		}
	}
	for _, mode := range pools["detectLocalMode"] {
		for _, name := range []string{"clusterCIDR", "detectLocal.bridgeInterface", "detectLocal.interfaceNamePrefix"} {
			for _, value := range pools[name] {
				c.compareFile(document(map[string]string{"detectLocalMode": mode, name: value}))
			}
		}
	}
}

// combinations compares several fields at a time, the same ones in each run.
func (c *configurations) combinations() {
	r := rand.New(rand.NewPCG(1, 2))
	pools := pools()
	const files, enough = 60, 12
	accepted := 0
	for range files {
		fields := make(map[string]string)
		for _, name := range slices.Sorted(maps.Keys(pools)) {
			if r.IntN(8) == 0 {
				fields[name] = pools[name][r.IntN(min(4, len(pools[name])))] // the first ones are mostly valid
			}
		}
		if c.compareFile(document(fields)) {
			accepted++
		}
	}
	if accepted < enough {
		c.t.Errorf("got %d of %d files accepted, want at least %d", accepted, files, enough)
	}
}

// flags compares flags without and with a file.
func (c *configurations) flags() {
	file := filepath.Join(c.dir, "with-flags.conf")
	text := document(map[string]string{
		"logging.verbosity": "3", "logging.vmodule": "[{filePattern: a, verbosity: 3}]",
		"hostnameOverride": "File", "oomScoreAdj": "5",
	})
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	for _, args := range commandLines() {
		c.compare(fmt.Sprintf("%q", args), append([]string{"--proxy-mode=nftables"}, args...)...)
		c.compare(fmt.Sprintf("with a file: %q", args), append([]string{"--config", file}, args...)...)
	}
}

func (c *configurations) compareFile(text string) (accepted bool) {
	c.t.Helper()
	file := filepath.Join(c.dir, "config.conf")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return c.compare(text, "--config", file)
}

// compare compares both programs with the same arguments. The default of
// nftables.minSyncPeriod differs on purpose: the product's is 0.
func (c *configurations) compare(what string, args ...string) (accepted bool) {
	c.t.Helper()
	want, wantErr := c.write(upstream, args)
	got, gotErr := c.write(product, args)
	if (wantErr == nil) != (gotErr == nil) {
		c.t.Errorf("%s\nkube-proxy: %v\nnftproxy:   %v", what, wantErr, gotErr)
	}
	if wantErr != nil || gotErr != nil {
		return false
	}
	ours, _ := got["nftables"].(map[string]any)
	theirs, _ := want["nftables"].(map[string]any)
	if ours["minSyncPeriod"] == "0s" {
		ours["minSyncPeriod"] = theirs["minSyncPeriod"]
	}
	if g, w := c.text(got), c.text(want); g != w {
		c.t.Errorf("%s\nkube-proxy:\n%s\nnftproxy:\n%s", what, w, g)
	}
	return true
}

// write returns the configuration that a program writes. The error is the
// last line of the output.
func (c *configurations) write(name string, args []string) (map[string]any, error) {
	c.t.Helper()
	file := filepath.Join(c.dir, name+".yaml")
	if err := os.RemoveAll(file); err != nil {
		c.t.Fatal(err)
	}
	args = append(slices.Clone(args), "--write-config-to", file)
	out, err := c.at.Command(c.t.Context(), program(name), args...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
		if exit.ExitCode() < 1 || strings.Contains(string(out), "goroutine ") {
			c.t.Errorf("%s %q: %v\n%s", name, args, err, out)
		}
		return nil, errors.New(string(lines[len(lines)-1]))
	}
	if err != nil {
		c.t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		c.t.Fatal(err)
	}
	var object map[string]any
	if err := yaml.Unmarshal(text, &object); err != nil {
		c.t.Fatalf("%s %q: %v\n%s", name, args, err, text)
	}
	return object, nil
}

func (c *configurations) text(object map[string]any) string {
	c.t.Helper()
	text, err := yaml.Marshal(object)
	if err != nil {
		c.t.Fatal(err)
	}
	return string(text)
}
