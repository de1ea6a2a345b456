package admission

import (
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
	metaapi "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// EndpointSlice validates an EndpointSlice.
func EndpointSlice(slice *discoveryv1.EndpointSlice) field.ErrorList {
	var c checker
	c.meta(&slice.ObjectMeta, namespaceScope, metaapi.NameIsDNSSubdomain)
	addressType := field.NewPath("addressType")
	if slice.AddressType == "" {
		c.add(field.Required(addressType, ""))
	}
	enum(&c, addressType, slice.AddressType,
		discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)
	c.endpointPorts(field.NewPath("ports"), slice.Ports)
	for i, endpoint := range slice.Endpoints {
		path := field.NewPath("endpoints").Index(i).Child("addresses")
		if len(endpoint.Addresses) == 0 {
			c.add(field.Required(path, "must contain at least 1 address"))
		}
		for i, address := range endpoint.Addresses {
			c.endpointAddress(path.Index(i), address, slice.AddressType)
		}
	}
	return c.errs
}

func (c *checker) endpointPorts(path *field.Path, ports []discoveryv1.EndpointPort) {
	names := sets.New[string]()
	for i, port := range ports {
		path := path.Index(i)
		c.unique(names, path.Child("name"), ptr.Deref(port.Name, ""))
		c.protocol(path.Child("protocol"), ptr.Deref(port.Protocol, ""))
		if port.Port != nil { // nil stands for all ports
			c.port(path.Child("port"), *port.Port)
		}
	}
}

// endpointAddress checks an address against the type of the slice. If the type
// is invalid, which is an error of its own, or FQDN, every address is valid.
func (c *checker) endpointAddress(path *field.Path, address string, addressType discoveryv1.AddressType) {
	if addressType != discoveryv1.AddressTypeIPv4 && addressType != discoveryv1.AddressTypeIPv6 {
		return
	}
	if c.reachable(path, address) &&
		netip.MustParseAddr(address).Is4() != (addressType == discoveryv1.AddressTypeIPv4) {
		c.invalid(path, address, "must be an "+string(addressType)+" address")
	}
}
