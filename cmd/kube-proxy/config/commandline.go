package config

import (
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
)

// commandLine is the flags, bound to options and to the configuration that is used without a file.
type commandLine struct {
	options *Options
	groups  []flagGroup
	all     *pflag.FlagSet

	// Flags that are not a field of the configuration.
	hostnameOverride         string
	clusterCIDR              string
	healthzPort, metricsPort int32
	// Flags of other modes that kube-proxy keeps apart as well, and those that come from its libraries.
	ipvsSyncPeriod, ipvsMinSyncPeriod time.Duration
	bootIDFile, machineIDFile         string
}

type flagGroup struct {
	name string
	set  *pflag.FlagSet
}

// group begins a group of flags as --help shows them.
func (c *commandLine) group(name string) *pflag.FlagSet {
	set := pflag.NewFlagSet(name, pflag.ContinueOnError)
	set.SortFlags = false
	c.groups = append(c.groups, flagGroup{name, set})
	return set
}

// parse reads the arguments into what the flags are bound to.
func (c *commandLine) parse(args []string) error {
	c.all = pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	c.all.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	c.all.SortFlags = false
	c.all.Usage = func() {}
	for _, g := range c.groups {
		c.all.AddFlagSet(g.set)
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

func (c *commandLine) changed(flag string) bool { return c.all.Changed(flag) }

func (c *commandLine) values() map[string]string {
	out := make(map[string]string)
	c.all.VisitAll(func(f *pflag.Flag) { out[f.Name] = f.Value.String() })
	return out
}

// applyToConfiguration completes the configuration from those flags that are not bound to it. With --write-config-to, port 0 is left
// out, since no file can say that there is no server.
func (c *commandLine) applyToConfiguration() error {
	config := c.options.Configuration
	writing := c.options.WriteConfigTo != ""
	config.HealthzBindAddress = serverAddress(config.HealthzBindAddress, c.healthzPort, defaultHealthzPort, writing)
	config.MetricsBindAddress = serverAddress(config.MetricsBindAddress, c.metricsPort, defaultMetricsPort, writing)
	if c.changed("cluster-cidr") {
		config.ClusterCIDR = c.clusterCIDR
		if c.clusterCIDR == "" && (config.DetectLocalMode == "" || config.DetectLocalMode == modeClusterCIDR) {
			return errors.New(`--cluster-cidr: "" is not a CIDR: leave the flag out if there is none`)
		}
	}
	return nil
}

func serverAddress(addr string, port, byDefault int32, writing bool) string {
	if port == 0 && !writing {
		return ""
	}
	if port == 0 {
		port = byDefault
	}
	return withPort(addr, port)
}

// overrideHostname gives --hostname-override precedence over the file.
func (c *commandLine) overrideHostname(config *v1alpha1.KubeProxyConfiguration) error {
	if c.hostnameOverride == "" {
		return nil
	}
	config.HostnameOverride = canonicalName(c.hostnameOverride)
	if config.HostnameOverride == "" {
		return fmt.Errorf("--hostname-override: %q has no name in it: give the node's name, or leave the flag out", c.hostnameOverride)
	}
	return nil
}

// overrideLogging gives logging flags that are set precedence over the file's logging section. Patterns of --vmodule come in addition, and first.
func (c *commandLine) overrideLogging(logging *logsapi.LoggingConfiguration) error {
	file := *logging
	set := pflag.NewFlagSet("logging", pflag.ContinueOnError)
	logsapi.AddFlags(logging, set) // sets the switches among them to false
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

// warnings tells which flags were set for nothing, since file is given, or since they have no effect here.
func (c *commandLine) warnings(file string) []string {
	var out []string
	c.all.Visit(func(f *pflag.Flag) {
		fact := factOf(f.Name)
		switch {
		case fact.inert != "":
			out = append(out, fmt.Sprintf("--%s has no effect: %s", f.Name, fact.inert))
		case file != "" && fact.field != "" && !fact.overrides:
			out = append(out, fmt.Sprintf("--%s has no effect: with --config, %s in %s counts", f.Name, fact.field, file))
		case fact.deprecated != "":
			out = append(out, fmt.Sprintf("--%s is deprecated: %s", f.Name, fact.deprecated))
		}
	})
	if file == "" && c.options.WriteConfigTo != "" {
		out = append(out, c.unwritable()...)
	}
	slices.Sort(out)
	return out
}

// unwritable tells which values the written file cannot hold, since there they mean the default.
func (c *commandLine) unwritable() []string {
	var out []string
	config := c.options.Configuration
	for _, v := range []struct {
		flag string
		is   bool
	}{
		{"healthz-port", c.healthzPort == 0},
		{"metrics-port", c.metricsPort == 0},
		{"metrics-bind-address", config.MetricsBindAddress == ""},
		{"iptables-min-sync-period", config.NFTables.MinSyncPeriod.Duration == 0},
		{"kube-api-qps", config.ClientConnection.QPS == 0},
		{"kube-api-burst", config.ClientConnection.Burst == 0},
		{"kube-api-content-type", config.ClientConnection.ContentType == ""},
	} {
		if v.is {
			out = append(out, fmt.Sprintf("--%s: a configuration file cannot say this value, the default counts when the file is read", v.flag))
		}
	}
	return out
}

// explain makes an error of the problems: it names the flag or the file and the field that each comes from.
func (c *commandLine) explain(found []problem, file string) error {
	var errs []error
	for _, p := range found {
		errs = append(errs, fmt.Errorf("%s: %s", c.origin(p.field, file), p.text))
	}
	return errors.Join(errs...)
}

// origin is where a field's value comes from.
func (c *commandLine) origin(field, file string) string {
	for _, fact := range flagFacts {
		if within(field, fact.field) && (file == "" || fact.overrides && c.changed(fact.flag)) {
			return "--" + fact.flag
		}
	}
	if file == "" {
		return field
	}
	return file + ": " + field
}

// within tells whether field is of or below another one.
func within(field, of string) bool {
	rest, ok := strings.CutPrefix(field, of)
	return ok && of != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
