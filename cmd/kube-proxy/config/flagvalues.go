package config

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

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

// seconds is a duration of whole seconds from 0 to a maximum.
type seconds struct {
	value *time.Duration
	max   time.Duration
}

func (s *seconds) String() string { return s.value.String() }
func (s *seconds) Type() string   { return "duration" }

func (s *seconds) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	if d < 0 || d > s.max || d%time.Second != 0 {
		return fmt.Errorf("%v is not a number of seconds from 0s to %v", d, s.max)
	}
	*s.value = d
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

// Version is the value of --version: true, false, raw, or a version to report
// instead of our own, such as v1.37.0.
type Version string

// Printed reports whether the program prints its version and exits.
func (v Version) Printed() bool { return v == "true" || v == VersionRaw }

// VersionRaw is the Version that adds the build information.
const VersionRaw Version = "raw"

// String implements pflag.Value.
func (v *Version) String() string { return string(*v) }

// Type implements pflag.Value.
func (v *Version) Type() string { return "version" }

// IsBoolFlag reports that the flag needs no value.
func (v *Version) IsBoolFlag() bool { return true }

// Set implements pflag.Value.
func (v *Version) Set(s string) error {
	b, err := strconv.ParseBool(s)
	switch {
	case err == nil:
		*v = Version(strconv.FormatBool(b))
		return nil
	case strings.HasPrefix(s, "v"):
		if _, err := utilversion.ParseSemantic(s); err != nil {
			return err
		}
	case Version(s) != VersionRaw:
		return fmt.Errorf("%q is none of true, false, raw, vX.Y.Z", s)
	}
	*v = Version(s)
	return nil
}
