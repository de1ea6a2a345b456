package config

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"
)

// warnings returns a warning for each flag that is set and has no effect or
// is deprecated. file is the value of --config.
func (c *commandLine) warnings(file string) []string {
	var out []string
	c.all.Visit(func(f *pflag.Flag) {
		fact := factOf(f.Name)
		switch {
		case f.Name == "ipvs-scheduler":
			out = append(out, fmt.Sprintf("--%s has no effect: %s", f.Name, noScheduler(f.Value.String())))
		case fact.inert != "":
			out = append(out, fmt.Sprintf("--%s has no effect: %s", f.Name, fact.inert))
		case file != "" && fact.field != "" && !fact.overrides:
			out = append(out, fmt.Sprintf("--%s has no effect with --config: %s sets %s", f.Name, file, fact.field))
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

// unwritable returns a warning for each value that means the default in a
// configuration file, so that --write-config-to cannot write it.
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
			out = append(out, fmt.Sprintf("--%s: this value means the default in a configuration file", v.flag))
		}
	}
	return out
}
