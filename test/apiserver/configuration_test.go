package apiserver

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/test/lab"
	"github.com/nftproxy/nftproxy/test/lab/labtest"
)

// TestConfiguration gives nftproxy and kube-proxy the same files and flags,
// which testdata/configuration.yaml describes. Both must write the same
// configuration with --write-config-to, or fail.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	if subjectName() != product {
		return
	}
	c := &configurations{T: t, at: labtest.New(t).Node1.Namespace, dir: t.TempDir()}
	text, err := os.ReadFile("testdata/configuration.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, c); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]func(*configurations){
		"values": (*configurations).eachValue, "combinations": (*configurations).combinations,
		"files": (*configurations).files, "flags": (*configurations).flags,
		"other versions": (*configurations).otherVersions,
	} {
		t.Run(name, func(t *testing.T) {
			part := *c
			part.T = t
			test(&part)
		})
	}
}

// configurations compares configurations.
type configurations struct {
	*testing.T `json:"-"`
	at         *lab.Namespace // of the programs
	dir        string

	values
	OtherVersions values // that kube-proxy refuses
	Files         []string
}

// values are values of fields, by name, and command lines.
type values struct {
	Fields map[string][]string
	Flags  [][]string
}

// eachValue compares each value of each field alone, and with each mode of
// local detection the fields of the modes.
func (c *configurations) eachValue() {
	for _, name := range slices.Sorted(maps.Keys(c.Fields)) {
		for _, value := range c.Fields[name] {
			c.compareFile(document(map[string]string{name: value}))
		}
	}
	for _, mode := range c.Fields["detectLocalMode"] {
		for _, name := range []string{"clusterCIDR", "detectLocal.bridgeInterface", "detectLocal.interfaceNamePrefix"} {
			for _, value := range c.Fields[name] {
				c.compareFile(document(map[string]string{"detectLocalMode": mode, name: value}))
			}
		}
	}
}

// combinations compares several fields at a time, the same ones in each run.
func (c *configurations) combinations() {
	r := rand.New(rand.NewPCG(1, 2))
	const files, enough = 60, 12
	accepted := 0
	for range files {
		fields := make(map[string]string)
		for _, name := range slices.Sorted(maps.Keys(c.Fields)) {
			if values := c.Fields[name]; r.IntN(8) == 0 {
				fields[name] = values[r.IntN(min(4, len(values)))] // the first ones are mostly valid
			}
		}
		if c.compareFile(document(fields)) {
			accepted++
		}
	}
	if accepted < enough {
		c.Errorf("got %d of %d files accepted, want at least %d", accepted, files, enough)
	}
}

func (c *configurations) files() {
	for _, file := range c.Files {
		c.compareFile(file)
	}
}

// flags compares flags without and with a file.
func (c *configurations) flags() {
	file := c.file(document(map[string]string{
		"logging.verbosity": "3", "logging.vmodule": "[{filePattern: a, verbosity: 3}]",
		"hostnameOverride": "File", "oomScoreAdj": "5",
	}))
	for _, args := range c.Flags {
		c.compare(fmt.Sprintf("%q", args), append([]string{"--proxy-mode=nftables"}, args...)...)
		c.compare(fmt.Sprintf("with a file: %q", args), append([]string{"--config", file}, args...)...)
	}
}

// otherVersions checks that nftproxy accepts what kube-proxy refuses.
func (c *configurations) otherVersions() {
	check := func(what string, args ...string) {
		if _, err := c.write(upstream, args); err == nil {
			c.Errorf("%s: kube-proxy accepts it", what)
		}
		if _, err := c.write(product, args); err != nil {
			c.Errorf("%s: %v", what, err)
		}
	}
	for name, values := range c.OtherVersions.Fields {
		for _, value := range values {
			check(name+": "+value, "--config", c.file(document(map[string]string{name: value})))
		}
	}
	for _, args := range c.OtherVersions.Flags {
		check(fmt.Sprintf("%q", args), append([]string{"--proxy-mode=nftables"}, args...)...)
	}
}

// document returns a file with the fields, whose names can be SECTION.FIELD.
func document(fields map[string]string) string {
	sections := make(map[string][]string)
	text := "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n"
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if section, field, ok := strings.Cut(name, "."); ok {
			sections[section] = append(sections[section], "  "+field+": "+fields[name])
			continue
		}
		text += name + ": " + fields[name] + "\n"
	}
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		text += name + ":\n" + strings.Join(sections[name], "\n") + "\n"
	}
	return text
}

// file writes a file and returns its name.
func (c *configurations) file(text string) string {
	c.Helper()
	file, err := os.CreateTemp(c.dir, "*.conf")
	if err != nil {
		c.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		c.Fatal(err)
	}
	return file.Name()
}

func (c *configurations) compareFile(text string) (accepted bool) {
	c.Helper()
	return c.compare(text, "--config", c.file(text))
}

// compare compares both programs with the same arguments. The default of
// nftables.minSyncPeriod differs on purpose: the product's is 0.
func (c *configurations) compare(what string, args ...string) (accepted bool) {
	c.Helper()
	want, wantErr := c.write(upstream, args)
	got, gotErr := c.write(product, args)
	if (wantErr == nil) != (gotErr == nil) {
		c.Errorf("%s\nkube-proxy: %v\nnftproxy:   %v", what, wantErr, gotErr)
	}
	if wantErr != nil || gotErr != nil {
		return false
	}
	ours, _ := got["nftables"].(map[string]any)
	theirs, _ := want["nftables"].(map[string]any)
	if ours["minSyncPeriod"] == "0s" {
		ours["minSyncPeriod"] = theirs["minSyncPeriod"]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		c.Errorf("%s (-kube-proxy +nftproxy):\n%s", what, diff)
	}
	return true
}

// write returns the configuration that a program writes. The error is the
// last line of the output.
func (c *configurations) write(name string, args []string) (object map[string]any, err error) {
	c.Helper()
	file := c.file("")
	args = append(slices.Clone(args), "--write-config-to", file)
	out, err := c.at.Command(c.Context(), program(name), args...).CombinedOutput()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
		if exit.ExitCode() < 1 || bytes.Contains(out, []byte("goroutine ")) {
			c.Errorf("%s %q: %v\n%s", name, args, err, out)
		}
		return nil, errors.New(string(lines[len(lines)-1]))
	}
	text, errRead := os.ReadFile(file)
	if err := errors.Join(err, errRead, yaml.Unmarshal(text, &object)); err != nil {
		c.Fatalf("%s %q: %v\n%s", name, args, err, text)
	}
	return object, nil
}
