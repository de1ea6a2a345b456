package admission

import (
	networkingv1 "k8s.io/api/networking/v1"
	metaapi "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ServiceCIDR validates a ServiceCIDR. It must have one CIDR, or one of each
// family, in canonical form.
func ServiceCIDR(serviceCIDR *networkingv1.ServiceCIDR) field.ErrorList {
	defaultMeta(&serviceCIDR.ObjectMeta, clusterScope)
	return append(
		validateMeta(&serviceCIDR.ObjectMeta, clusterScope, metaapi.NameIsDNSSubdomain),
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
	if repeatsFamily(cidrs) {
		errs = append(errs, field.Invalid(path, cidrs,
			"may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"))
	}
	return errs
}
