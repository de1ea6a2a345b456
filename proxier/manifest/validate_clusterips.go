package manifest

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateClusterIPs checks clusterIP, clusterIPs, ipFamilies and ipFamilyPolicy, which depend on each other. An
// ExternalName Service must have none of them, see validateExternalName.
func validateClusterIPs(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	if spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	familyErrs := validateFamilies(spec, path)
	errs, ips := familyErrs, path.Child("clusterIPs")
	if len(spec.ClusterIPs) > 0 && spec.ClusterIPs[0] != spec.ClusterIP {
		errs = append(errs, field.Invalid(ips, spec.ClusterIPs, "first value must match `clusterIP`"))
	}
	if len(spec.ClusterIPs) > 2 {
		errs = append(errs, field.Invalid(ips, spec.ClusterIPs, "may only hold up to 2 values"))
	}
	addrs, addrErrs := parseClusterIPs(spec.ClusterIPs, ips)
	if len(addrErrs) > 0 || len(familyErrs) > 0 {
		// Whether addresses have the right family can be said only if both are known.
		return append(errs, addrErrs...)
	}
	return append(errs, validateAddressFamilies(addrs, spec, ips)...)
}

// validateFamilies checks ipFamilies and ipFamilyPolicy.
func validateFamilies(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, family := range spec.IPFamilies {
		path := path.Child("ipFamilies").Index(i)
		errs = append(errs, validateEnum(path, family, corev1.IPv4Protocol, corev1.IPv6Protocol)...)
		errs = append(errs, validateUnique(seen, path, string(family))...)
	}
	policy, path := *spec.IPFamilyPolicy, path.Child("ipFamilyPolicy")
	errs = append(errs, validateEnum(path, policy, corev1.IPFamilyPolicyPreferDualStack,
		corev1.IPFamilyPolicyRequireDualStack, corev1.IPFamilyPolicySingleStack)...)
	if policy != corev1.IPFamilyPolicySingleStack {
		return errs
	}
	const dualStack = "must be 'RequireDualStack' or 'PreferDualStack' when multiple "
	if len(spec.ClusterIPs) > 1 {
		errs = append(errs, field.Invalid(path, policy, dualStack+"cluster IPs are specified"))
	} else if len(spec.IPFamilies) > 1 {
		errs = append(errs, field.Invalid(path, policy, dualStack+"IP families are specified"))
	}
	return errs
}

// parseClusterIPs returns the addresses, none for a headless Service.
func parseClusterIPs(ips []string, path *field.Path) ([]netip.Addr, field.ErrorList) {
	if len(ips) > 0 && ips[0] == corev1.ClusterIPNone {
		if len(ips) > 1 {
			return nil, field.ErrorList{field.Invalid(path, ips, "'None' must be the first and only value")}
		}
		return nil, nil
	}
	var (
		addrs []netip.Addr
		errs  field.ErrorList
	)
	for i, ip := range ips {
		if ipErrs := validateIP(path.Index(i), ip); len(ipErrs) > 0 {
			errs = append(errs, ipErrs...)
			continue
		}
		addrs = append(addrs, netip.MustParseAddr(ip))
	}
	return addrs, errs
}

// validateAddressFamilies checks that there is one address of each family at most, in the order of ipFamilies.
func validateAddressFamilies(addrs []netip.Addr, spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	families := sets.New[corev1.IPFamily]()
	for i, addr := range addrs {
		families.Insert(familyOf(addr))
		if i < len(spec.IPFamilies) && spec.IPFamilies[i] != familyOf(addr) {
			errs = append(errs, field.Invalid(path.Index(i), spec.ClusterIPs[i],
				fmt.Sprintf("expected an %s value as indicated by `ipFamilies[%d]`", spec.IPFamilies[i], i)))
		}
	}
	if len(families) < len(addrs) {
		errs = append(errs, field.Invalid(path, spec.ClusterIPs, "may specify no more than one IP for each IP family"))
	}
	return errs
}
