package admission

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateProtocol checks the protocol of a port of a Service or an
// EndpointSlice.
func validateProtocol(path *field.Path, protocol corev1.Protocol) field.ErrorList {
	return validateEnum(path, protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

// validateServicePorts checks the ports of a Service. Names, pairs of
// protocol and port, and pairs of protocol and nodePort must be unique.
func validateServicePorts(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	if len(spec.Ports) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	names, ports, nodePorts := sets.New[string](), sets.New[string](), sets.New[string]()
	for i := range spec.Ports {
		port, path := &spec.Ports[i], path.Index(i)
		errs = append(errs, validatePortName(port.Name, names, len(spec.Ports) > 1, path.Child("name"))...)
		errs = append(errs, validatePort(path.Child("port"), port.Port)...)
		errs = append(errs, validateProtocol(path.Child("protocol"), port.Protocol)...)
		protocol := cmp.Or(port.Protocol, corev1.ProtocolTCP)
		errs = append(errs, validateUnique(ports, path, fmt.Sprintf("%s/%d", protocol, port.Port))...)
		if port.NodePort == 0 {
			continue
		}
		path = path.Child("nodePort")
		errs = append(errs, validateNodePort(port.NodePort, spec.Type, path)...)
		errs = append(errs, validateUnique(nodePorts, path, fmt.Sprintf("%s/%d", protocol, port.NodePort))...)
	}
	return errs
}

// validatePortName checks the name of a port of a Service, which is part of
// the names of chains.
func validatePortName(name string, seen sets.Set[string], required bool, path *field.Path) field.ErrorList {
	if name == "" {
		if required {
			return field.ErrorList{field.Required(path, "")}
		}
		return nil
	}
	var errs field.ErrorList
	for _, message := range validation.IsDNS1123Label(name) {
		errs = append(errs, field.Invalid(path, name, message))
	}
	return append(errs, validateUnique(seen, path, name)...)
}

// validateNodePort checks a nodePort that is set. It accepts any port: the
// range --service-node-port-range is a flag of the API server.
func validateNodePort(nodePort int32, serviceType corev1.ServiceType, path *field.Path) field.ErrorList {
	if serviceType == "" || serviceType == corev1.ServiceTypeClusterIP {
		return field.ErrorList{field.Forbidden(path, "may not be used when `type` is 'ClusterIP'")}
	}
	return validatePort(path, nodePort)
}
