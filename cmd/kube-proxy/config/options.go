package config

import (
	"fmt"
	"os"
	"strings"

	"k8s.io/component-base/featuregate"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// Options is what the command line asks for.
type Options struct {
	// Configuration is complete and valid: from the file or the flags, with defaults. Its mode is nftables, and of the sections of other
	// modes only what kube-proxy keeps is left. With Help and Version it is the default configuration.
	Configuration *v1alpha1.KubeProxyConfiguration
	// FeatureGate has the feature gates of kube-proxy, as configured.
	FeatureGate featuregate.MutableFeatureGate

	ConfigFile    string // --config: the file that Configuration comes from
	WriteConfigTo string // --write-config-to: write Configuration to this file and exit
	Master        string // --master: the API server's address, in place of the kubeconfig's
	Manifests     string // --manifests: the directory to serve in place of an API server
	Cleanup       bool   // --cleanup: remove the rules and exit
	InitOnly      bool   // --init-only: do what needs all privileges and exit
	Help          bool   // --help: print the usage and exit
	Version       bool   // --version: print the version and exit
	VersionRaw    bool   // --version=raw: print all that is known of the version and exit; Version is true as well
	// ReportedVersion is the version to report in place of the program's own (--version=vX.Y.Z). Empty: its own.
	ReportedVersion string

	args     []string // what Parse was given
	readFile readFile // of the configuration file
	cmd      *commandLine
	warnings []string
	read     []byte // what the configuration file held
	// minSyncPeriodByDefault tells that nobody gave a minSyncPeriod.
	minSyncPeriodByDefault bool
}

// readFile returns the content of a file.
type readFile func(name string) ([]byte, error)

// Parse reads the command line, without the program's name, and the configuration file that it names. The error has a line for each wrong flag
// or field: it names the flag, or the file and the field, the value, and what is allowed.
func Parse(args []string) (*Options, error) { return parseWith(args, os.ReadFile) }

func parseWith(args []string, read readFile) (*Options, error) {
	o := &Options{Configuration: new(v1alpha1.KubeProxyConfiguration), args: args, readFile: read}
	setDefaults(o.Configuration)
	o.Configuration.NFTables.MinSyncPeriod.Duration = DefaultMinSyncPeriod
	o.cmd = newCommandLine(o)
	if err := o.cmd.parse(args); err != nil {
		return nil, err
	}
	if o.Help || o.Version {
		return o, nil
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	return o, nil
}

// Flags are all flags and their values as they are given or by default, as kube-proxy shows them on /flagz.
func (o *Options) Flags() map[string]string { return o.cmd.values() }

// complete makes the configuration from the file or the flags.
func (o *Options) complete() error {
	fromSource := o.takeFlags
	if o.ConfigFile != "" {
		fromSource = o.takeFile
	}
	if err := fromSource(); err != nil {
		return err
	}
	if err := o.cmd.overrideHostname(o.Configuration); err != nil {
		return err
	}
	gate, found := newFeatureGate(o.Configuration.FeatureGates)
	o.FeatureGate = gate
	o.warnings = append(o.warnings, featureWarnings(o.Configuration.FeatureGates)...)
	found = append(found, validate(o.Configuration, gate)...)
	if len(found) > 0 {
		return o.cmd.explain(found, o.ConfigFile)
	}
	keepMode(o.Configuration)
	return nil
}

// takeFlags makes the configuration from the flags.
func (o *Options) takeFlags() error {
	o.minSyncPeriodByDefault = !o.cmd.changed("iptables-min-sync-period")
	if err := o.cmd.applyToConfiguration(); err != nil {
		return err
	}
	o.warnings = append(o.warnings, o.cmd.warnings("")...)
	return nil
}

// takeFile makes the configuration from the file, and the logging flags.
func (o *Options) takeFile() error {
	c, err := o.load()
	if err != nil {
		return err
	}
	o.warnings = append(o.warnings, o.cmd.warnings(o.ConfigFile)...)
	for _, w := range fieldWarnings(c) {
		o.warnings = append(o.warnings, o.ConfigFile+": "+w)
	}
	setDefaults(c)
	o.minSyncPeriodByDefault = c.NFTables.MinSyncPeriod.Duration == 0
	if o.minSyncPeriodByDefault {
		c.NFTables.MinSyncPeriod.Duration = DefaultMinSyncPeriod
	}
	o.Configuration = c
	return o.cmd.overrideLogging(&c.Logging)
}

// load reads the configuration file.
func (o *Options) load() (*v1alpha1.KubeProxyConfiguration, error) {
	data, err := o.readFile(o.ConfigFile)
	if err != nil {
		return nil, fmt.Errorf("--config: %w: name a readable file with a KubeProxyConfiguration", err)
	}
	o.read = data
	c, lenient, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.ConfigFile, err)
	}
	for _, w := range lenient {
		o.warnings = append(o.warnings, o.ConfigFile+": "+w)
	}
	return c, nil
}

// Warnings tells what was set and has no effect, or will be gone in a later version: one sentence each.
func (o *Options) Warnings() []string { return o.warnings }

// canonicalName is a node's name as the API has it.
func canonicalName(s string) string { return strings.ToLower(strings.TrimSpace(s)) }
