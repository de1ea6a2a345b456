package manifest

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metaapi "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateNode checks what a proxy reads of a Node: its name, labels, pod CIDRs and addresses.
func validateNode(node *corev1.Node) field.ErrorList {
	return slices.Concat(
		validateMeta(&node.ObjectMeta, kindNode, metaapi.NameIsDNSSubdomain),
		validatePodCIDRs(node.Spec.PodCIDRs, field.NewPath("spec", "podCIDRs")),
		validateNodeAddresses(node.Status.Addresses, field.NewPath("status", "addresses")),
	)
}

func validatePodCIDRs(cidrs []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, cidr := range cidrs {
		errs = append(errs, validateCIDR(path.Index(i), cidr)...)
	}
	if len(cidrs) > 2 || !onePerFamily(cidrs) {
		errs = append(errs, field.Invalid(path, cidrs, "may specify no more than one CIDR for each IP family"))
	}
	return errs
}

// validateNodeAddresses checks that each address stands once, and is an IP address where its type says so.
func validateNodeAddresses(addresses []corev1.NodeAddress, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[corev1.NodeAddress]()
	for i, address := range addresses {
		path := path.Index(i)
		if seen.Has(address) {
			errs = append(errs, field.Duplicate(path, address))
		}
		seen.Insert(address)
		switch address.Type {
		case corev1.NodeInternalIP, corev1.NodeExternalIP:
			errs = append(errs, validateIP(path.Child("address"), address.Address)...)
		}
	}
	return errs
}

// validateServiceCIDR checks a ServiceCIDR: one CIDR, or one of each family, in canonical form.
func validateServiceCIDR(serviceCIDR *networkingv1.ServiceCIDR) field.ErrorList {
	return append(
		validateMeta(&serviceCIDR.ObjectMeta, kindServiceCIDR, metaapi.NameIsDNSSubdomain),
		validateServiceCIDRs(serviceCIDR.Spec.CIDRs, field.NewPath("spec", "cidrs"))...,
	)
}

func validateServiceCIDRs(cidrs []string, path *field.Path) field.ErrorList {
	switch count := len(cidrs); {
	case count == 0:
		return field.ErrorList{field.Required(path, "at least one CIDR required")}
	case count > 2:
		return field.ErrorList{field.Invalid(path, cidrs, "may only hold up to 2 values")}
	}
	var errs field.ErrorList
	for i, cidr := range cidrs {
		errs = append(errs, validation.IsValidCIDR(path.Index(i), cidr)...)
	}
	if !onePerFamily(cidrs) {
		errs = append(errs, field.Invalid(path, cidrs,
			"may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"))
	}
	return errs
}
