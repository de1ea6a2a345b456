package admission

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metaapi "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Node validates the metadata, pod CIDRs and addresses of a Node.
func Node(node *corev1.Node) field.ErrorList {
	var c checker
	c.meta(&node.ObjectMeta, clusterScope, metaapi.NameIsDNSSubdomain)
	c.cidrs(field.NewPath("spec", "podCIDRs"), node.Spec.PodCIDRs)
	for i, address := range node.Status.Addresses {
		switch address.Type {
		case corev1.NodeInternalIP, corev1.NodeExternalIP:
			c.ip(field.NewPath("status", "addresses").Index(i).Child("address"), address.Address)
		}
	}
	return c.errs
}

// ServiceCIDR validates a ServiceCIDR.
func ServiceCIDR(serviceCIDR *networkingv1.ServiceCIDR) field.ErrorList {
	var c checker
	c.meta(&serviceCIDR.ObjectMeta, clusterScope, metaapi.NameIsDNSSubdomain)
	c.cidrs(field.NewPath("spec", "cidrs"), serviceCIDR.Spec.CIDRs)
	return c.errs
}
