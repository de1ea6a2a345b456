package admission

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metaapi "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Node validates the metadata, pod CIDRs and addresses of a Node.
func Node(node *corev1.Node) field.ErrorList {
	errs := admitMeta(&node.ObjectMeta, clusterScope, metaapi.NameIsDNSSubdomain)
	errs = append(errs, validateCIDRs(field.NewPath("spec", "podCIDRs"), node.Spec.PodCIDRs)...)
	for i, address := range node.Status.Addresses {
		switch address.Type {
		case corev1.NodeInternalIP, corev1.NodeExternalIP:
			path := field.NewPath("status", "addresses").Index(i).Child("address")
			errs = append(errs, validateIP(path, address.Address)...)
		}
	}
	return errs
}

// ServiceCIDR validates a ServiceCIDR.
func ServiceCIDR(serviceCIDR *networkingv1.ServiceCIDR) field.ErrorList {
	return append(
		admitMeta(&serviceCIDR.ObjectMeta, clusterScope, metaapi.NameIsDNSSubdomain),
		validateCIDRs(field.NewPath("spec", "cidrs"), serviceCIDR.Spec.CIDRs)...,
	)
}
