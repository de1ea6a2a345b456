package config

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
	"k8s.io/kube-proxy/config/v1alpha1"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// Options is a parsed command line.
type Options struct {
	// Configuration comes from the file or the flags. It is complete and
	// valid, and its mode is nftables. With --help and --version it is
	// the default configuration.
	Configuration *v1alpha1.KubeProxyConfiguration
	// FeatureGate has the configured feature gates. It is nil with --help
	// and --version.
	FeatureGate featuregate.MutableFeatureGate

	ConfigFile    string // --config: read Configuration from this file
	WriteConfigTo string // --write-config-to: write Configuration to this file and exit
	Master        string // --master: URL of the API server; overrides the kubeconfig
	Manifests     string // --manifests: serve this directory instead of an API server
	// Rules has settings that have no field of Configuration (see ownSection).
	Rules ruleset.Config
	// LocalStatusPages is --local-status-pages.
	LocalStatusPages bool
	Cleanup          bool    // --cleanup: remove the rules and exit
	InitOnly         bool    // --init-only: set the conntrack sysctls and exit
	Help             bool    // --help: print the usage and exit
	Version          Version // --version

	args     []string // of Parse
	readFile fileReader
	cmd      *commandLine
	warnings []string
	content  []byte // of the configuration file
	// problem is the state of the configuration file, nil if it is in effect.
	problem atomic.Pointer[FileProblem]
	// minSyncPeriodUnset reports whether neither the flag nor the field is
	// set.
	minSyncPeriodUnset bool
}

// fileReader is the signature of os.ReadFile.
type fileReader func(name string) ([]byte, error)

// Parse parses the command line, without the program's name, and the file of
// --config. The error has one line for each invalid flag or field, with the
// flag, or the file and the field, and the value. With an error, the Options
// have only the format of the log, as far as it is known.
func Parse(args []string) (*Options, error) { return parseWith(args, os.ReadFile) }

func parseWith(args []string, read fileReader) (*Options, error) {
	o := &Options{
		Configuration: new(v1alpha1.KubeProxyConfiguration), args: args, readFile: read,
	}
	setDefaults(o.Configuration)
	o.Configuration.NFTables.MinSyncPeriod.Duration = defaultMinSyncPeriod
	o.cmd = newCommandLine(o)
	if err := o.cmd.parse(args); err != nil {
		return o, err
	}
	if o.Help || o.Version.Printed() {
		return o, nil
	}
	return o, o.complete()
}

// Flags returns all flags with their values or defaults, as kube-proxy shows
// them on /flagz.
func (o *Options) Flags() map[string]string {
	out := make(map[string]string)
	o.cmd.all.VisitAll(func(f *pflag.Flag) { out[f.Name] = f.Value.String() })
	return out
}

// complete sets Configuration from the file or the flags and validates it.
func (o *Options) complete() error {
	load := o.loadFlags
	if o.ConfigFile != "" {
		load = o.loadFile
	}
	if err := load(); err != nil {
		return err
	}
	if err := o.cmd.overrideHostname(o.Configuration); err != nil {
		return err
	}
	if err := errors.Join(o.cmd.checkNumbers(), o.cmd.checkPairs()); err != nil {
		return err
	}
	v := &validator{origin: o.cmd.origin, inFile: o.ConfigFile != ""}
	gate, warnings := newFeatureGate(o.Configuration.FeatureGates, v)
	o.FeatureGate = gate
	o.warnings = append(o.warnings, warnings...)
	if v.validate(o.Configuration, gate); len(v.errs) > 0 {
		return errors.Join(v.errs...)
	}
	setMode(o.Configuration)
	return nil
}

// loadFlags sets Configuration from the flags.
func (o *Options) loadFlags() error {
	o.minSyncPeriodUnset = !o.cmd.changed("iptables-min-sync-period")
	if err := o.cmd.applyToConfiguration(); err != nil {
		return err
	}
	o.warnings = append(o.warnings, o.cmd.warnings()...)
	if o.Manifests != "" {
		return o.cmd.keepSysctls()
	}
	return nil
}

// loadFile sets Configuration from the file and the logging flags.
func (o *Options) loadFile() error {
	data, err := o.readFile(o.ConfigFile)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	o.content = data
	c, warnings, err := decode(data)
	if err != nil {
		return fmt.Errorf("%s: %w", o.ConfigFile, err)
	}
	warn := func(warnings []string) {
		for _, w := range warnings {
			o.warnings = append(o.warnings, o.ConfigFile+": "+w)
		}
	}
	warn(warnings)
	warnings, err = o.cmd.setOwnFields(data)
	if err != nil {
		return err
	}
	warn(warnings)
	o.warnings = append(o.warnings, o.cmd.warnings()...)
	warn(fieldWarnings(c))
	setDefaults(c)
	o.minSyncPeriodUnset = c.NFTables.MinSyncPeriod.Duration == 0
	if o.minSyncPeriodUnset {
		c.NFTables.MinSyncPeriod.Duration = defaultMinSyncPeriod
	}
	o.Configuration = c
	return o.cmd.overrideLogging(&c.Logging)
}

// Warnings returns a sentence for each setting that has no effect or is
// deprecated.
func (o *Options) Warnings() []string { return o.warnings }

// canonicalName returns the name of a node in the form of the API.
func canonicalName(s string) string { return strings.ToLower(strings.TrimSpace(s)) }

// LogsJSON reports whether the log is in JSON.
func (o *Options) LogsJSON() bool { return o.Configuration.Logging.Format == logsapi.JSONLogFormat }

// ApplyLogging configures klog, to which slog writes with the level -v at
// verbosity v. It must be called at most once in a process, and before other
// goroutines log.
func (o *Options) ApplyLogging() error {
	slog.SetDefault(slog.New(logr.ToSlogHandler(klog.NewKlogr())))
	logs.InitLogs() // after slog, to which package log would write
	return logsapi.ValidateAndApplyAsField(&o.Configuration.Logging, o.FeatureGate, field.NewPath("logging"))
}
