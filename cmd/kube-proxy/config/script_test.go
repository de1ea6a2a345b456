package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientfeatures "k8s.io/client-go/features"
	"k8s.io/component-base/featuregate"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/test/script"
)

// TestScripts runs the scripts about flags and configuration files. These are
// their steps:
//
//	kube-proxy [FLAG…]    prints warnings, and the settings that are not the default
//	configuration FLAG…   prints the whole configuration
//	proxier FLAG…         prints the configuration of the Proxier, without empty fields
//	gate NAME [FLAG…]     prints whether a feature gate is enabled
//	flag NAME [FLAG…]     prints the value of a flag, as status pages show it
//	watch [FLAG…] FILE CONTENT…
//	                      watches a configuration file that gets the content of other files
//
// A content of watch can be briefly:FILE, none, which removes the file, same,
// and link:DIR, which does what the kubelet does to the volume of a ConfigMap.
func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{Setup: func(e *script.Env) (map[string]script.Command, error) {
		c := commands{e.WorkDir + "/", e.T.(*testing.T)}
		return script.Steps(map[string]any{
			"kube-proxy":    c.with(c.kubeProxy),
			"configuration": c.with(c.configuration),
			"proxier":       c.with(c.proxier),
			"gate":          c.named(gate),
			"flag":          c.named(func(o *Options, name string) (any, error) { return o.Flags()[name], nil }),
			"watch":         c.watch,
		}), nil
	}})
}

type commands struct {
	dir string // of the files
	t   *testing.T
}

// with returns a command that parses its arguments.
func (c commands) with(print func(o *Options) (string, error)) func(...string) (string, error) {
	return func(args ...string) (string, error) {
		o, err := c.parse(args)
		if err != nil {
			return "", err
		}
		text, err := print(o)
		return strings.ReplaceAll(text, c.dir, ""), err
	}
}

// named returns a command that parses its arguments after the first one, which
// is a name.
func (c commands) named(value func(o *Options, name string) (any, error)) any {
	return func(name string, args ...string) (any, error) {
		o, err := c.parse(args)
		if err != nil {
			return nil, err
		}
		return value(o, name)
	}
}

// parse parses arguments, in which --config=FILE names a file of the script.
func (c commands) parse(args []string) (*Options, error) {
	var absolute []string
	for _, arg := range args {
		absolute = append(absolute, strings.Replace(arg, "--config=", "--config="+c.dir, 1))
	}
	o, err := Parse(absolute)
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), c.dir, ""))
	}
	return o, nil
}

func (c commands) kubeProxy(o *Options) (string, error) {
	var text strings.Builder
	for _, w := range o.Warnings() {
		fmt.Fprintln(&text, "warning:", w)
	}
	defaults, err := Parse(nil)
	if err != nil {
		return "", err
	}
	differ, err := differences(settings(c.t, defaults), settings(c.t, o))
	for _, d := range differ {
		fmt.Fprintln(&text, d)
	}
	if err == nil && !o.Help && o.Version == defaults.Version {
		err = c.writeAndRead(o)
	}
	return text.String(), err
}

// settings returns the configuration, our own fields and the flags without a
// field.
func settings(t *testing.T, o *Options) []byte {
	t.Helper()
	configuration, err := yaml.Marshal(o.Configuration)
	if err != nil {
		t.Fatal(err)
	}
	flags, err := yaml.Marshal(map[string]any{
		"--master": o.Master, ownSection: o.cmd.ownFields(), "--cleanup": o.Cleanup, "--init-only": o.InitOnly,
		"--help": o.Help, "--version": o.Version, "prints its version": o.Version.Printed(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return append(configuration, flags...)
}

// writeAndRead checks that --write-config-to writes the same configuration,
// without new warnings and without our default of minSyncPeriod.
func (c commands) writeAndRead(o *Options) error {
	out := filepath.Join(c.t.TempDir(), "written.yaml")
	first, err := Parse(append(o.args[:len(o.args):len(o.args)], "--write-config-to", out))
	if err != nil {
		return err
	}
	if strings.Contains(strings.Join(first.Warnings(), "\n"), "means the default in a configuration file") {
		return nil
	}
	if err := first.WriteConfig(); err != nil {
		return err
	}
	second, err := Parse([]string{"--config", out})
	if err != nil {
		return err
	}
	if got, want := inJSON(second.Configuration), inJSON(first.Configuration); got != want {
		return fmt.Errorf("--write-config-to:\n got %s\nwant %s", got, want)
	}
	if got, want := inJSON(second.cmd.ownFields()), inJSON(first.cmd.ownFields()); got != want {
		return fmt.Errorf("--write-config-to: own fields:\n got %s\nwant %s", got, want)
	}
	if w := second.Warnings(); len(w) > 0 && len(first.Warnings()) == 0 {
		return fmt.Errorf("--write-config-to: got warnings %q, want none", w)
	}
	written, err := os.ReadFile(out)
	if bytes.Contains(written, []byte("minSyncPeriod: "+defaultMinSyncPeriod.String())) {
		return errors.New("--write-config-to: the file contains our default of minSyncPeriod")
	}
	return err
}

func (c commands) configuration(o *Options) (string, error) {
	text, err := yaml.Marshal(o.Configuration)
	return string(text), err
}

func (c commands) proxier(o *Options) (string, error) {
	config, err := o.Proxier()
	if err != nil {
		return "", err
	}
	text, err := yaml.Marshal(struct {
		proxier.Config
		SyncPeriod, MinSyncPeriod string
	}{config, config.SyncPeriod.String(), config.MinSyncPeriod.String()})
	if err != nil {
		return "", err
	}
	fields, err := differences(nil, text)
	empty := regexp.MustCompile(`(?m)^\S+ (""|0|false|\[\])?\n`)
	lines := strings.ReplaceAll(strings.Join(fields, "\n")+"\n", " none -> ", " ")
	return empty.ReplaceAllString(lines, ""), err
}

func gate(o *Options, name string) (any, error) {
	enabled := o.FeatureGate.Enabled(featuregate.Feature(name))
	if (clientGates{o.FeatureGate}).Enabled(clientfeatures.Feature(name)) != enabled {
		return nil, errors.New("client-go gets another value")
	}
	return enabled, nil
}

func (c commands) watch(s *script.Script, args ...string) (text string, err error) {
	flags := 0
	for strings.HasPrefix(args[flags], "--") {
		flags++
	}
	file, contents := args[flags], args[flags+1:]
	o, err := c.parse(append(args[:flags:flags], "--config="+file))
	if err != nil {
		return "", err
	}
	var log bytes.Buffer
	logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
	synctest.Test(c.t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		result := make(chan string, 1)
		go func() {
			err := o.WatchConfigFile(ctx)
			if ctx.Err() == nil {
				result <- fmt.Sprintf("exit: %v\n", err)
			}
			close(result)
		}()
		time.Sleep(watchInterval / 2)
		for _, content := range contents {
			content, briefly := strings.CutPrefix(content, "briefly:")
			c.put(t, s, file, content)
			if time.Sleep(watchInterval); !briefly {
				time.Sleep(watchInterval)
			}
		}
		cancel()
		text = <-result
		if problem := o.FileProblem(); problem != nil {
			text += fmt.Sprintf("problem of %s: %s\n", problem.File, problem.Error)
		}
	})
	header := regexp.MustCompile(`(?m)^[EI].*?\] `)
	return strings.ReplaceAll(header.ReplaceAllString(log.String(), "")+text, c.dir, ""), nil
}

// put changes the content of a file.
func (c commands) put(t *testing.T, s *script.Script, file, content string) {
	path := s.MkAbs(file)
	dir, isLink := strings.CutPrefix(content, "link:")
	data, next := s.MkAbs("..data"), s.MkAbs("..data_tmp")
	var err error
	switch {
	case content == "same":
	case content == "none":
		err = os.Remove(path)
	case isLink:
		before, _ := filepath.EvalSymlinks(data)
		err = errors.Join(os.Symlink(dir, next), os.Rename(next, data), os.RemoveAll(before))
	default:
		err = os.WriteFile(path, []byte(s.ReadFile(content)), 0o600)
	}
	if err != nil {
		t.Error(err)
	}
}
