package admission

import (
	"net/netip"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The API server requires the canonical form of addresses in newer fields. In
// older fields, called legacy fields, it accepts other spellings. Both refuse
// leading zeros and IPv4-mapped IPv6 addresses since Kubernetes 1.36
// (KEP-4858). This package accepts all spellings of legacy fields everywhere.

// ip checks an address, and reports whether it is valid.
func (c *checker) ip(path *field.Path, value string) bool {
	errs := validation.IsValidIPForLegacyField(path, value, true, nil)
	c.add(errs...)
	return len(errs) == 0
}

// cidrs checks CIDRs, which may have spaces around them.
func (c *checker) cidrs(path *field.Path, values []string) {
	for i, value := range values {
		c.add(validation.IsValidCIDRForLegacyField(path.Index(i), strings.TrimSpace(value), true, nil)...)
	}
}

// reachable refuses addresses that are invalid or that other machines cannot
// reach: rules for them would redirect traffic of the node itself. It reports
// whether the address is valid.
func (c *checker) reachable(path *field.Path, value string) bool {
	if !c.ip(path, value) {
		return false
	}
	addr := netip.MustParseAddr(value)
	var reason string
	switch {
	case addr.IsUnspecified():
		reason = "may not be unspecified (" + value + ")"
	case addr.IsLoopback():
		reason = "may not be in the loopback range (127.0.0.0/8, ::1/128)"
	case addr.IsLinkLocalUnicast():
		reason = "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
	case addr.IsLinkLocalMulticast():
		reason = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
	default:
		return true
	}
	c.invalid(path, value, reason)
	return false
}
