package admission

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metaapi "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Node sets the defaults of a Node. It validates the fields that a proxy
// reads: the name, labels, pod CIDRs and addresses.
func Node(node *corev1.Node) field.ErrorList {
	defaultMeta(&node.ObjectMeta, clusterScope)
	defaultPodCIDRs(&node.Spec)
	if node.Status.Allocatable == nil {
		node.Status.Allocatable = node.Status.Capacity.DeepCopy()
	}
	return slices.Concat(
		validateMeta(&node.ObjectMeta, clusterScope, metaapi.NameIsDNSSubdomain),
		validatePodCIDRs(node.Spec.PodCIDRs, field.NewPath("spec", "podCIDRs")),
		validateNodeAddresses(node.Status.Addresses, field.NewPath("status", "addresses")),
	)
}

// defaultPodCIDRs makes podCIDR the first element of podCIDRs. If they
// differ, podCIDR replaces podCIDRs, as in the API server.
func defaultPodCIDRs(spec *corev1.NodeSpec) {
	if spec.PodCIDR != "" && (len(spec.PodCIDRs) == 0 || spec.PodCIDRs[0] != spec.PodCIDR) {
		spec.PodCIDRs = []string{spec.PodCIDR}
	}
	if spec.PodCIDR == "" && len(spec.PodCIDRs) > 0 {
		spec.PodCIDR = spec.PodCIDRs[0]
	}
}

func validatePodCIDRs(cidrs []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, cidr := range cidrs {
		errs = append(errs, validateCIDR(path.Index(i), cidr)...)
	}
	if len(cidrs) > 2 || repeatsFamily(cidrs) {
		errs = append(errs, field.Invalid(path, cidrs, "may specify no more than one CIDR for each IP family"))
	}
	return errs
}

// validateNodeAddresses checks that addresses are unique, and that addresses
// of the IP types are IP addresses.
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
