package admission

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metaapi "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// The maximum numbers of elements in the lists of an EndpointSlice.
const (
	maxEndpoints         = 1000
	maxEndpointAddresses = 100
	maxEndpointPorts     = 20000
	maxHints             = 8 // each of forZones and forNodes
)

// EndpointSlice sets the defaults of an EndpointSlice and validates it.
func EndpointSlice(slice *discoveryv1.EndpointSlice) field.ErrorList {
	defaultMeta(&slice.ObjectMeta, namespaceScope)
	defaultEndpointPorts(slice.Ports)
	for i := range slice.Endpoints {
		slice.Endpoints[i].DeprecatedTopology = nil // from v1beta1; v1 ignores it
	}
	return slices.Concat(
		validateMeta(&slice.ObjectMeta, namespaceScope, metaapi.NameIsDNSSubdomain),
		validateAddressType(slice.AddressType, field.NewPath("addressType")),
		validateEndpointPorts(slice.Ports, field.NewPath("ports")),
		validateEndpoints(slice, field.NewPath("endpoints")),
	)
}

func defaultEndpointPorts(ports []discoveryv1.EndpointPort) {
	for i := range ports {
		port := &ports[i]
		if port.Name == nil {
			port.Name = ptr.To("")
		}
		if port.Protocol == nil {
			port.Protocol = ptr.To(corev1.ProtocolTCP)
		}
	}
}

func validateAddressType(addressType discoveryv1.AddressType, path *field.Path) field.ErrorList {
	if addressType == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return validateEnum(path, addressType,
		discoveryv1.AddressTypeFQDN, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)
}

func validateEndpointPorts(ports []discoveryv1.EndpointPort, path *field.Path) field.ErrorList {
	if len(ports) > maxEndpointPorts {
		return field.ErrorList{field.TooMany(path, len(ports), maxEndpointPorts)}
	}
	var errs field.ErrorList
	names := sets.New[string]()
	for i, port := range ports {
		path := path.Index(i)
		if *port.Name != "" {
			errs = append(errs, invalid(path.Child("name"), *port.Name, validation.IsDNS1123Label(*port.Name))...)
		}
		errs = append(errs, validateUnique(names, path.Child("name"), *port.Name)...)
		errs = append(errs, validateProtocol(path.Child("protocol"), *port.Protocol)...)
		if port.Port != nil { // nil stands for all ports
			errs = append(errs, validatePort(path.Child("port"), *port.Port)...)
		}
		if port.AppProtocol != nil {
			errs = append(errs, invalid(path.Child("appProtocol"), *port.AppProtocol,
				validation.IsQualifiedName(*port.AppProtocol))...)
		}
	}
	return errs
}

func validateEndpoints(slice *discoveryv1.EndpointSlice, path *field.Path) field.ErrorList {
	if len(slice.Endpoints) > maxEndpoints {
		return field.ErrorList{field.TooMany(path, len(slice.Endpoints), maxEndpoints)}
	}
	var errs field.ErrorList
	for i := range slice.Endpoints {
		errs = append(errs, validateEndpoint(&slice.Endpoints[i], slice.AddressType, path.Index(i))...)
	}
	return errs
}

func validateEndpoint(
	endpoint *discoveryv1.Endpoint, addressType discoveryv1.AddressType, path *field.Path,
) field.ErrorList {
	var errs field.ErrorList
	addresses := path.Child("addresses")
	switch count := len(endpoint.Addresses); {
	case count == 0:
		errs = append(errs, field.Required(addresses, "must contain at least 1 address"))
	case count > maxEndpointAddresses:
		errs = append(errs, field.TooMany(addresses, count, maxEndpointAddresses))
	}
	for i, address := range endpoint.Addresses {
		errs = append(errs, validateEndpointAddress(address, addressType, addresses.Index(i))...)
	}
	if endpoint.NodeName != nil {
		errs = append(errs, invalid(path.Child("nodeName"), *endpoint.NodeName,
			validation.IsDNS1123Subdomain(*endpoint.NodeName))...)
	}
	if endpoint.Hostname != nil {
		errs = append(errs, invalid(path.Child("hostname"), *endpoint.Hostname,
			validation.IsDNS1123Label(*endpoint.Hostname))...)
	}
	if endpoint.Hints != nil {
		errs = append(errs, validateHints(endpoint.Hints, path.Child("hints"))...)
	}
	return errs
}

// validateEndpointAddress checks an address against the type of the slice. If
// the type is invalid, which is an error of its own, every address is valid.
func validateEndpointAddress(address string, addressType discoveryv1.AddressType, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch addressType {
	case discoveryv1.AddressTypeIPv4:
		errs = validateIP(path, address)
	case discoveryv1.AddressTypeIPv6:
		errs = validation.IsValidIP(path, address)
	case discoveryv1.AddressTypeFQDN:
		return validation.IsFullyQualifiedDomainName(path, address)
	default:
		return nil
	}
	if len(errs) > 0 {
		return errs
	}
	if family := familyOf(netip.MustParseAddr(address)); string(family) != string(addressType) {
		errs = append(errs, field.Invalid(path, address, "must be an "+string(addressType)+" address"))
	}
	return append(errs, validateReachable(path, address)...)
}

// validateHints checks the zones and nodes whose clients should use an
// endpoint.
func validateHints(hints *discoveryv1.EndpointHints, path *field.Path) field.ErrorList {
	var zones, nodes []string
	for _, zone := range hints.ForZones {
		zones = append(zones, zone.Name)
	}
	for _, node := range hints.ForNodes {
		nodes = append(nodes, node.Name)
	}
	return append(
		validateHintNames(zones, path.Child("forZones"), validation.IsValidLabelValue),
		validateHintNames(nodes, path.Child("forNodes"), validation.IsDNS1123Subdomain)...,
	)
}

func validateHintNames(names []string, path *field.Path, validName func(string) []string) field.ErrorList {
	if len(names) > maxHints {
		return field.ErrorList{field.TooMany(path, len(names), maxHints)}
	}
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, name := range names {
		path := path.Index(i).Child("name")
		errs = append(errs, validateUnique(seen, path, name)...)
		errs = append(errs, invalid(path, name, validName(name))...)
	}
	return errs
}
