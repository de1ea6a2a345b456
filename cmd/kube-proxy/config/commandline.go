package config

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/kube-proxy/config/v1alpha1"
)

// commandLine holds the flags. Most of them are bound to options or to
// options.Configuration, which is in effect without --config.
type commandLine struct {
	options *Options
	groups  []flagGroup
	all     *pflag.FlagSet

	// Flags that have no field of the configuration.
	hostnameOverride         string
	clusterCIDR              string
	healthzPort, metricsPort int32
	// Flags without effect, whose values /flagz shows.
	ipvsSyncPeriod, ipvsMinSyncPeriod time.Duration
	bootIDFile, machineIDFile         string
}

type flagGroup struct {
	name string
	set  *pflag.FlagSet
}

// group adds a group of flags to --help.
func (c *commandLine) group(name string) *pflag.FlagSet {
	set := pflag.NewFlagSet(name, pflag.ContinueOnError)
	set.SortFlags = false
	c.groups = append(c.groups, flagGroup{name, set})
	return set
}

// parse sets the flags from args.
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

// changed reports whether a flag is set on the command line.
func (c *commandLine) changed(flag string) bool { return c.all.Changed(flag) }

// values returns the values of all flags.
func (c *commandLine) values() map[string]string {
	out := make(map[string]string)
	c.all.VisitAll(func(f *pflag.Flag) { out[f.Name] = f.Value.String() })
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
	if c.changed("cluster-cidr") {
		config.ClusterCIDR = c.clusterCIDR
		if c.clusterCIDR == "" && (config.DetectLocalMode == "" || config.DetectLocalMode == modeClusterCIDR) {
			return errors.New(`--cluster-cidr: must not be empty: set a CIDR or omit the flag`)
		}
	}
	return nil
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
