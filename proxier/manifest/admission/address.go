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

// validateIP checks an address.
func validateIP(path *field.Path, value string) field.ErrorList {
	return validation.IsValidIPForLegacyField(path, value, true, nil)
}

// validateCIDRs checks CIDRs, which may have spaces around them.
func validateCIDRs(path *field.Path, values []string) field.ErrorList {
	var errs field.ErrorList
	for i, value := range values {
		errs = append(errs,
			validation.IsValidCIDRForLegacyField(path.Index(i), strings.TrimSpace(value), true, nil)...)
	}
	return errs
}

// validateReachable refuses addresses that are invalid or that other machines
// cannot reach: rules for them would redirect traffic of the node itself.
func validateReachable(path *field.Path, value string) field.ErrorList {
	if errs := validateIP(path, value); len(errs) > 0 {
		return errs
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
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, reason)}
}
