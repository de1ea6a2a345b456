package config

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/test/must"
)

var record = flag.String("record", "", "record what this kube-proxy does with the files and flags of TestLikeKubeProxy")

const recorded = "testdata/kube-proxy-v1.37.2.yaml"

// TestLikeKubeProxy parses the files and command lines of
// testdata/kube-proxy-cases.yaml. Each must lead to the configuration that
// kube-proxy v1.37.2 writes with --write-config-to, or to an error. What
// kube-proxy does is recorded:
//
//	go test -run TestLikeKubeProxy -record=PROGRAM .
func TestLikeKubeProxy(t *testing.T) {
	cases := new(kubeProxyCases)
	readYAML(t, "testdata/kube-proxy-cases.yaml", cases)
	all := cases.all()
	if *record != "" {
		text, err := yaml.Marshal(answers(t, runKubeProxy, all))
		if err == nil {
			err = os.WriteFile(recorded, text, 0o644)
		}
		must.NoError(t, err)
	}
	want := make(map[string][]string)
	readYAML(t, recorded, &want)
	got := answers(t, runParse, all)
	others := cases.OtherVersions.all()
	for name := range want {
		ok := slices.Equal(got[name], want[name])
		if _, differs := others[name]; differs {
			ok = slices.Equal(want[name], refused) && !slices.Equal(got[name], refused)
		}
		if contradicts.MatchString(name) {
			ok = slices.Equal(got[name], refused)
		}
		if !ok {
			t.Errorf("%s:\nkube-proxy: %s\nnftproxy:   %s", name, want[name], got[name])
		}
	}
	for name := range got {
		if want[name] == nil {
			t.Errorf("%s: what kube-proxy does is not recorded", name)
		}
	}
}

// contradicts matches cases with an interface that has no effect, which
// kube-proxy accepts.
var contradicts = regexp.MustCompile(`detectLocal\.\w+=\w.* detectLocalMode=NodeCIDR`)

func readYAML(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	must.NoError(t, err)
}

// kubeProxyCases are files and command lines.
type kubeProxyCases struct {
	configValues
	OtherVersions configValues // that kube-proxy refuses
	Files         []string
}

// configValues are values of fields, by name, and command lines.
type configValues struct {
	Fields map[string][]string
	Flags  [][]string
}

// configCase is a command line, and the file of its flag --config.
type configCase struct {
	args []string
	file string
}

// all returns each value of each field alone, and each command line.
func (v configValues) all() map[string]configCase {
	all := make(map[string]configCase)
	for name, values := range v.Fields {
		for _, value := range values {
			addFields(all, map[string]string{name: value})
		}
	}
	for _, args := range v.Flags {
		all[fmt.Sprintf("flags: %q", args)] = configCase{args: append([]string{"--proxy-mode=nftables"}, args...)}
	}
	return all
}

// all returns all cases, by name.
func (c *kubeProxyCases) all() map[string]configCase {
	all := c.configValues.all()
	maps.Copy(all, c.OtherVersions.all())
	for _, file := range c.Files {
		all[fmt.Sprintf("file: %q", file)] = configCase{file: file}
	}
	for _, mode := range c.Fields["detectLocalMode"] {
		for _, name := range []string{"clusterCIDR", "detectLocal.bridgeInterface", "detectLocal.interfaceNamePrefix"} {
			for _, value := range c.Fields[name] {
				addFields(all, map[string]string{"detectLocalMode": mode, name: value})
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		fields := make(map[string]string)
		for _, name := range slices.Sorted(maps.Keys(c.Fields)) {
			if values := c.Fields[name]; r.IntN(8) == 0 {
				fields[name] = values[r.IntN(min(4, len(values)))] // the first ones are mostly valid
			}
		}
		addFields(all, fields)
	}
	file := document(map[string]string{
		"logging.verbosity": "3", "logging.vmodule": "[{filePattern: a, verbosity: 3}]",
		"hostnameOverride": "File", "oomScoreAdj": "5",
	})
	for _, args := range c.Flags {
		all[fmt.Sprintf("flags with a file: %q", args)] = configCase{args, file}
	}
	return all
}

// addFields adds a file with fields.
func addFields(all map[string]configCase, fields map[string]string) {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		names = append(names, name+"="+fields[name])
	}
	all["fields: "+strings.Join(names, " ")] = configCase{file: document(fields)}
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

var refused = []string{"refused"}

// answers returns what write does in each case: it returns an error, or a
// configuration, of which answers has the differences from the default. The
// case "defaults" has all fields.
func answers(t *testing.T, write func(t *testing.T, c configCase) ([]byte, error), cases map[string]configCase) (
	all map[string][]string) {
	t.Helper()
	defaults, err := write(t, configCase{args: []string{"--proxy-mode=nftables"}})
	must.NoError(t, err)
	all = make(map[string][]string)
	describe := func(name string, from, to []byte) {
		fields, err := differences(from, to)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		all[name] = append([]string{}, fields...)
	}
	describe("defaults", nil, defaults)
	for name, c := range cases {
		written, err := write(t, c)
		if all[name] = refused; err == nil {
			describe(name, defaults, written)
		}
	}
	return all
}

// runParse returns the configuration that we write, with kube-proxy's default
// of minSyncPeriod.
func runParse(t *testing.T, c configCase) ([]byte, error) {
	args := c.args
	if c.file != "" || args == nil {
		args = append(args[:len(args):len(args)], "--config=FILE")
	}
	args = append(args[:len(args):len(args)], "--write-config-to=FILE")
	o, err := parseWith(args, func(string) ([]byte, error) { return []byte(c.file), nil })
	if err != nil {
		return nil, err
	}
	if o.minSyncPeriodUnset {
		o.minSyncPeriodUnset = false
		o.Configuration.NFTables.MinSyncPeriod.Duration = time.Second
	}
	return o.encode()
}

// runKubeProxy returns the configuration that the program of the flag -record
// writes.
func runKubeProxy(t *testing.T, c configCase) ([]byte, error) {
	dir := t.TempDir()
	in, out, args := filepath.Join(dir, "in"), filepath.Join(dir, "out"), c.args
	must.NoError(t, os.WriteFile(in, []byte(c.file), 0o600))
	if c.file != "" || args == nil {
		args = append(args[:len(args):len(args)], "--config="+in)
	}
	args = append(args[:len(args):len(args)], "--write-config-to="+out)
	if _, err := exec.Command(*record, args...).Output(); err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() < 1 {
			t.Errorf("%q: %v", args, err)
		}
		return nil, err
	}
	return os.ReadFile(out)
}
