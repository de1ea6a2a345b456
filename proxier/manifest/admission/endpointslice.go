package admission

import (
	"net/netip"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	metaapi "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// EndpointSlice validates an EndpointSlice.
func EndpointSlice(slice *discoveryv1.EndpointSlice) field.ErrorList {
	return slices.Concat(
		admitMeta(&slice.ObjectMeta, namespaceScope, metaapi.NameIsDNSSubdomain),
		validateAddressType(slice.AddressType, field.NewPath("addressType")),
		validateEndpointPorts(slice.Ports, field.NewPath("ports")),
		validateEndpoints(slice, field.NewPath("endpoints")),
	)
}

func validateAddressType(addressType discoveryv1.AddressType, path *field.Path) field.ErrorList {
	if addressType == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return validateEnum(path, addressType,
		discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)
}

func validateEndpointPorts(ports []discoveryv1.EndpointPort, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := sets.New[string]()
	for i, port := range ports {
		path := path.Index(i)
		errs = append(errs, validateUnique(names, path.Child("name"), ptr.Deref(port.Name, ""))...)
		errs = append(errs, validateProtocol(path.Child("protocol"), ptr.Deref(port.Protocol, ""))...)
		if port.Port != nil { // nil stands for all ports
			errs = append(errs, validatePort(path.Child("port"), *port.Port)...)
		}
	}
	return errs
}

func validateEndpoints(slice *discoveryv1.EndpointSlice, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, endpoint := range slice.Endpoints {
		path := path.Index(i).Child("addresses")
		if len(endpoint.Addresses) == 0 {
			errs = append(errs, field.Required(path, "must contain at least 1 address"))
		}
		for i, address := range endpoint.Addresses {
			errs = append(errs, validateEndpointAddress(address, slice.AddressType, path.Index(i))...)
		}
	}
	return errs
}

// validateEndpointAddress checks an address against the type of the slice. If
// the type is invalid, which is an error of its own, or FQDN, every address is
// valid.
func validateEndpointAddress(address string, addressType discoveryv1.AddressType, path *field.Path) field.ErrorList {
	if addressType != discoveryv1.AddressTypeIPv4 && addressType != discoveryv1.AddressTypeIPv6 {
		return nil
	}
	if errs := validateReachable(path, address); len(errs) > 0 {
		return errs
	}
	if netip.MustParseAddr(address).Is4() != (addressType == discoveryv1.AddressTypeIPv4) {
		return field.ErrorList{field.Invalid(path, address, "must be an "+string(addressType)+" address")}
	}
	return nil
}
