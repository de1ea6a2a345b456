package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/kube-proxy/config/v1alpha1"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// flagSpec is a flag of kube-proxy.
type flagSpec struct {
	name string
	// value is the variable that the flag sets, a pflag.Value or a pointer.
	// Before, it holds the default. nil stands for a flag of a library.
	value any
	effect
	help string
}

// effect describes the effect and the values of a flag.
type effect struct {
	// field is the equivalent field of the configuration file, "" for none.
	field string
	// overrides reports whether the flag also applies with --config. It has
	// precedence over the field.
	overrides bool
	// inert is the reason why the flag has no effect, "" if it has one.
	inert string
	// successor returns what replaces a value of an inert flag. It may be nil.
	successor func(value string) string
	// deprecated names the replacement of a deprecated flag. --help hides the
	// flag.
	deprecated string
	// zeroIsDefault reports whether an empty value or 0 means the default in a
	// configuration file, so that --write-config-to cannot write it.
	zeroIsDefault bool
	// low and high are the range of an int, 0 for a number without a maximum.
	low, high int
}

// commandLine holds the flags. Most of them are bound to options or to
// options.Configuration, which is in effect without --config.
type commandLine struct {
	options *Options
	flags   []flagSpec
	groups  cliflag.NamedFlagSets
	all     *pflag.FlagSet

	// Flags that have no field of the configuration.
	hostnameOverride         string
	healthzPort, metricsPort int32
}

// add adds flags to a group.
func (c *commandLine) add(group string, flags []flagSpec) {
	c.flags = append(c.flags, flags...)
	set := c.groups.FlagSet(group)
	for _, f := range flags {
		switch value := f.value.(type) {
		case *string:
			set.StringVar(value, f.name, *value, f.help)
		case *bool:
			set.BoolVar(value, f.name, *value, f.help)
		case *int:
			set.IntVar(value, f.name, *value, f.help)
		case *int32:
			set.Int32Var(value, f.name, *value, f.help)
		case *float32:
			set.Float32Var(value, f.name, *value, f.help)
		case *time.Duration:
			set.DurationVar(value, f.name, *value, f.help)
		case *[]string:
			set.StringSliceVar(value, f.name, *value, f.help)
		case pflag.Value:
			set.Var(value, f.name, f.help)
		}
		set.Lookup(f.name).Hidden = f.deprecated != ""
	}
}

// exceptions returns the flags that apply with --config, except the logging
// flags.
func (c *commandLine) exceptions() []string {
	var out []string
	for _, f := range c.flags {
		if f.overrides && f.value != nil {
			out = append(out, "--"+f.name)
		}
	}
	return out
}

// parse sets the flags from args.
func (c *commandLine) parse(args []string) error {
	c.all = pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	c.all.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	c.all.SortFlags = false
	c.all.Usage = func() {}
	for _, group := range c.groups.FlagSets {
		group.SortFlags = false
		c.all.AddFlagSet(group)
	}
	if err := c.all.Parse(args); err != nil {
		return err
	}
	for _, arg := range c.all.Args() {
		if arg != "" {
			return fmt.Errorf("unexpected argument %q: kube-proxy takes flags only", arg)
		}
	}
	return nil
}

// changed reports whether a flag is set on the command line.
func (c *commandLine) changed(flag string) bool { return c.all.Changed(flag) }

// checkNumbers returns an error that names each int that is out of its range.
func (c *commandLine) checkNumbers() error {
	var errs []error
	for _, f := range c.flags {
		name := c.origin(f.field)
		switch n, ok := f.value.(*int); {
		case !ok:
		case f.high == 0 && *n < 0:
			errs = append(errs, fmt.Errorf("%s: %d is less than 0", name, *n))
		case f.high > 0 && (*n < f.low || *n > f.high):
			errs = append(errs, fmt.Errorf("%s: %d is not in the range from %d to %d", name, *n, f.low, f.high))
		}
	}
	return errors.Join(errs...)
}

// checkPairs returns an error about settings that contradict each other.
func (c *commandLine) checkPairs() error {
	var errs []error
	o, own := c.options, func(name string) string { return c.origin(ownSection + "." + name) }
	if o.Master != "" && o.Manifests != "" {
		errs = append(errs, fmt.Errorf("--master and %s: serve an API server or a folder, not both", own("manifests")))
	}
	rows := o.Rules.Budgets
	limit := cmp.Or(rows.Namespace, ruleset.DefaultNamespaceRows)
	if rows.Service > limit && rows.Service != ruleset.DefaultServiceRows {
		errs = append(errs, fmt.Errorf("%s: %d is greater than %s, %d", own("maxServiceRows"), rows.Service,
			own("maxNamespaceRows"), limit))
	}
	return errors.Join(errs...)
}

// warnings returns a warning for each flag that is set and has no effect, is
// deprecated, or has a value that cannot be written to a file.
func (c *commandLine) warnings() (out []string) {
	file := c.options.ConfigFile
	warn := func(format string, args ...any) { out = append(out, fmt.Sprintf("--"+format, args...)) }
	for _, f := range c.flags {
		if !c.changed(f.name) {
			continue
		}
		value := c.all.Lookup(f.name).Value.String()
		switch {
		case f.successor != nil:
			warn("%s has no effect: %s%s", f.name, f.inert, f.successor(value))
		case f.inert != "":
			warn("%s has no effect: %s", f.name, f.inert)
		case file != "" && f.field != "" && !f.overrides:
			warn("%s has no effect with --config: %s sets %s", f.name, file, f.field)
		case f.deprecated != "":
			warn("%s is deprecated: %s", f.name, f.deprecated)
		}
		writing := file == "" && c.options.WriteConfigTo != ""
		if writing && f.zeroIsDefault && slices.Contains([]string{"", "0", "0s"}, value) {
			warn("%s: this value means the default in a configuration file", f.name)
		}
	}
	slices.Sort(out)
	return out
}

// applyToConfiguration sets the fields whose flags are not bound to them. It
// ignores port 0 with --write-config-to, because a file cannot disable a
// server.
func (c *commandLine) applyToConfiguration() error {
	config := c.options.Configuration
	writing := c.options.WriteConfigTo != ""
	config.HealthzBindAddress = serverAddress(config.HealthzBindAddress, c.healthzPort, defaultHealthzPort, writing)
	config.MetricsBindAddress = serverAddress(config.MetricsBindAddress, c.metricsPort, defaultMetricsPort, writing)
	byCIDR := config.DetectLocalMode == "" || config.DetectLocalMode == modeClusterCIDR
	if byCIDR && c.changed("cluster-cidr") && config.ClusterCIDR == "" {
		return errors.New(`--cluster-cidr: must not be empty: set a CIDR or omit the flag`)
	}
	return nil
}

// keepSysctls makes connection tracking keep the sysctls of the node, unless
// their flags are set: a machine without a cluster has its own.
func (c *commandLine) keepSysctls() error {
	var errs []error
	for _, f := range c.flags {
		isSet := c.changed(f.name) || f.name == "conntrack-max-per-core" && c.changed("conntrack-min")
		if within(f.field, "conntrack") && !isSet {
			errs = append(errs, c.all.Lookup(f.name).Value.Set("0"))
		}
	}
	return errors.Join(errs...)
}

// serverAddress returns the address of a server, "" if there is no server.
func serverAddress(addr string, port, defaultPort int32, writing bool) string {
	if port == 0 && !writing {
		return ""
	}
	return withPort(addr, cmp.Or(port, defaultPort))
}

// overrideHostname applies --hostname-override, which has precedence over the
// file.
func (c *commandLine) overrideHostname(config *v1alpha1.KubeProxyConfiguration) error {
	if c.hostnameOverride == "" {
		return nil
	}
	config.HostnameOverride = canonicalName(c.hostnameOverride)
	if config.HostnameOverride == "" {
		return fmt.Errorf("--hostname-override: %q is blank: set the node's name or omit the flag", c.hostnameOverride)
	}
	return nil
}

// overrideLogging applies the logging flags that are set, which have
// precedence over the logging section of the file. The patterns of --vmodule
// are added in front of the patterns of the file.
func (c *commandLine) overrideLogging(logging *logsapi.LoggingConfiguration) error {
	file := *logging
	set := pflag.NewFlagSet("logging", pflag.ContinueOnError)
	logsapi.AddFlags(logging, set) // resets the boolean fields to false
	logging.Options.Text.SplitStream = file.Options.Text.SplitStream
	logging.Options.JSON.SplitStream = file.Options.JSON.SplitStream
	logging.VModule = nil
	var errs []error
	set.VisitAll(func(f *pflag.Flag) {
		if given := c.all.Lookup(f.Name); given.Changed {
			if err := f.Value.Set(given.Value.String()); err != nil {
				errs = append(errs, fmt.Errorf("--%s: %w", f.Name, err))
			}
		}
	})
	logging.VModule = append(logging.VModule, file.VModule...)
	return errors.Join(errs...)
}

// origin returns the flag, or the file and the field, that a field's value
// comes from.
func (c *commandLine) origin(field string) string {
	file := c.options.ConfigFile
	for _, f := range c.flags {
		if within(field, f.field) && (file == "" || f.overrides && c.changed(f.name)) {
			return "--" + f.name
		}
	}
	if file == "" {
		return field
	}
	return file + ": " + field
}

// within reports whether field is parent or a field below it.
func within(field, parent string) bool {
	rest, ok := strings.CutPrefix(field, parent)
	return ok && parent != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
