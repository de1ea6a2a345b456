package admission

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// The API server requires the canonical form of addresses in newer fields. In
// older fields, called legacy fields, it accepts other spellings. Both refuse
// leading zeros and IPv4-mapped IPv6 addresses since Kubernetes 1.36
// (KEP-4858).

// validateIP checks an address in a legacy field.
func validateIP(path *field.Path, value string) field.ErrorList {
	return validation.IsValidIPForLegacyField(path, value, true, nil)
}

// validateCIDR checks a CIDR in a legacy field.
func validateCIDR(path *field.Path, value string) field.ErrorList {
	return validation.IsValidCIDRForLegacyField(path, value, true, nil)
}

// validateReachable refuses addresses that other machines cannot reach. value
// is a valid address.
func validateReachable(path *field.Path, value string) field.ErrorList {
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

// repeatsFamily reports whether valid CIDRs include two of the same family.
// It returns false if a CIDR is invalid, which is an error of its own.
func repeatsFamily(cidrs []string) bool {
	dualStack, err := netutils.IsDualStackCIDRStrings(cidrs)
	return err == nil && (len(cidrs) > 2 || len(cidrs) == 2 && !dualStack)
}

// familyOf returns the family of an address as the Service API names it.
func familyOf(addr netip.Addr) corev1.IPFamily {
	if addr.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}
