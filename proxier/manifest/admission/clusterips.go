package admission

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// defaultClusterIPs sets clusterIP and clusterIPs from each other, and the
// families and the policy from them. It adds no family without an address:
// the families of the cluster are unknown.
func defaultClusterIPs(spec *corev1.ServiceSpec) {
	switch {
	case spec.ClusterIP == "" && len(spec.ClusterIPs) > 0:
		spec.ClusterIP = spec.ClusterIPs[0]
	case spec.ClusterIP != "" && len(spec.ClusterIPs) == 0:
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	for i := len(spec.IPFamilies); i < len(spec.ClusterIPs); i++ {
		addr, err := netip.ParseAddr(spec.ClusterIPs[i])
		if err != nil || slices.Contains(spec.IPFamilies, familyOf(addr)) {
			break // "None", or refused by the validation
		}
		spec.IPFamilies = append(spec.IPFamilies, familyOf(addr))
	}
	if spec.IPFamilyPolicy == nil {
		spec.IPFamilyPolicy = ptr.To(defaultFamilyPolicy(spec))
	}
}

func defaultFamilyPolicy(spec *corev1.ServiceSpec) corev1.IPFamilyPolicy {
	// The endpoints of a headless Service without selector can be of any
	// family.
	selectorless := spec.ClusterIP == corev1.ClusterIPNone && len(spec.Selector) == 0
	if selectorless || len(spec.ClusterIPs) > 1 || len(spec.IPFamilies) > 1 {
		return corev1.IPFamilyPolicyRequireDualStack
	}
	return corev1.IPFamilyPolicySingleStack
}

// validateClusterIPs checks clusterIP, clusterIPs, ipFamilies and
// ipFamilyPolicy. See validateExternalName for Services of type ExternalName.
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
		// Comparing addresses with families requires that both are valid.
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

// parseClusterIPs returns the addresses. A headless Service has none.
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

// validateAddressFamilies checks that each family has at most one address,
// and that the addresses are in the order of ipFamilies.
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
