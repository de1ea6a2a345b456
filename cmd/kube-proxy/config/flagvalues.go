package config

import (
	"fmt"
	"net"
	"strconv"

	utilversion "k8s.io/apimachinery/pkg/util/version"
	netutils "k8s.io/utils/net"

	"github.com/nftproxy/nftproxy/proxier/ruleset"
)

// text is a string flag with a type name and an optional check.
type text struct {
	value *string
	typ   string
	check func(string) error
	// keepOnEmpty makes an empty value keep the default.
	keepOnEmpty bool
}

func (t *text) String() string { return *t.value }
func (t *text) Type() string   { return t.typ }

func (t *text) Set(s string) error {
	if s == "" && t.keepOnEmpty {
		return nil
	}
	if s != "" && t.check != nil {
		if err := t.check(s); err != nil {
			return err
		}
	}
	*t.value = s
	return nil
}

// checkServiceMetrics accepts the values of --service-metrics.
func checkServiceMetrics(s string) error { return ruleset.ServiceMetrics(s).Validate() }

func checkIP(s string) error {
	_, err := parseAddress(s)
	return err
}

// checkIPPort accepts IP and IP:PORT.
func checkIPPort(s string) error {
	if checkIP(s) == nil {
		return nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return fmt.Errorf("%q is neither IP nor IP:PORT", s)
	}
	if err := checkIP(host); err != nil {
		return err
	}
	if _, err := netutils.ParsePort(port, true); err != nil {
		return fmt.Errorf("%q is not a port", port)
	}
	return nil
}

// version is the value of --version: true, false, raw, or a version to report
// instead of our own.
type version struct{ options *Options }

func (v *version) Type() string     { return "version" }
func (v *version) IsBoolFlag() bool { return true }

func (v *version) String() string {
	switch {
	case v.options.VersionRaw:
		return "raw"
	case v.options.ReportedVersion != "":
		return v.options.ReportedVersion
	}
	return strconv.FormatBool(v.options.Version)
}

func (v *version) Set(s string) error {
	o := v.options
	if s == "raw" {
		o.Version, o.VersionRaw, o.ReportedVersion = true, true, ""
		return nil
	}
	if s != "" && s[0] == 'v' {
		if _, err := utilversion.ParseSemantic(s); err != nil {
			return err
		}
		o.Version, o.VersionRaw, o.ReportedVersion = false, false, s
		return nil
	}
	b, err := strconv.ParseBool(s)
	if err != nil {
		return fmt.Errorf("%q is none of true, false, raw, vX.Y.Z", s)
	}
	o.Version, o.VersionRaw, o.ReportedVersion = b, false, ""
	return nil
}
