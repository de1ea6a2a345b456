package manifest

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The API server wants addresses in fields that came late in their canonical form, and is content with any
// spelling in the older, "legacy" ones. Leading zeros and IPv4-mapped IPv6 addresses are refused in both since
// Kubernetes 1.36 (KEP-4858).

// validateIP checks an address in a legacy field.
func validateIP(path *field.Path, value string) field.ErrorList {
	return validation.IsValidIPForLegacyField(path, value, true, nil)
}

// validateCIDR checks a CIDR in a legacy field.
func validateCIDR(path *field.Path, value string) field.ErrorList {
	return validation.IsValidCIDRForLegacyField(path, value, true, nil)
}

// validateReachable refuses addresses that nobody reaches from elsewhere. value is a valid address.
func validateReachable(path *field.Path, value string) field.ErrorList {
	addr := netip.MustParseAddr(value)
	switch {
	case addr.IsUnspecified():
		return field.ErrorList{field.Invalid(path, value, "may not be unspecified ("+value+")")}
	case addr.IsLoopback():
		return field.ErrorList{field.Invalid(path, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)")}
	case addr.IsLinkLocalUnicast():
		return field.ErrorList{field.Invalid(path, value, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")}
	case addr.IsLinkLocalMulticast():
		return field.ErrorList{field.Invalid(path, value, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")}
	}
	return nil
}

// onePerFamily tells whether there is at most one CIDR of each family. Invalid ones count as neither.
func onePerFamily(cidrs []string) bool {
	var v4, v6 int
	for _, cidr := range cidrs {
		prefix, err := netip.ParsePrefix(cidr)
		switch {
		case err != nil:
		case prefix.Addr().Is4():
			v4++
		default:
			v6++
		}
	}
	return v4 <= 1 && v6 <= 1
}
