package admission

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateProtocol checks the protocol of a port of a Service or an
// EndpointSlice.
func validateProtocol(path *field.Path, protocol corev1.Protocol) field.ErrorList {
	return validateEnum(path, protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

func defaultServicePort(port *corev1.ServicePort) {
	setDefault(&port.Protocol, corev1.ProtocolTCP)
	if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
		port.TargetPort = intstr.FromInt32(port.Port)
	}
}

// validateServicePorts checks the ports of a Service. Names, pairs of
// protocol and port, and pairs of protocol and nodePort must be unique.
func validateServicePorts(spec *corev1.ServiceSpec, path *field.Path) field.ErrorList {
	path = path.Child("ports")
	if len(spec.Ports) == 0 && !isHeadless(spec) && spec.Type != corev1.ServiceTypeExternalName {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	names, ports, nodePorts := sets.New[string](), sets.New[string](), sets.New[string]()
	for i := range spec.Ports {
		port, path := &spec.Ports[i], path.Index(i)
		errs = append(errs, validateServicePort(port, len(spec.Ports) > 1, path)...)
		if port.Name != "" {
			errs = append(errs, validateUnique(names, path.Child("name"), port.Name)...)
		}
		errs = append(errs, validateUnique(ports, path, fmt.Sprintf("%s/%d", port.Protocol, port.Port))...)
		if port.NodePort == 0 {
			continue
		}
		errs = append(errs, validateNodePort(port, spec.Type, path.Child("nodePort"))...)
		errs = append(errs, validateUnique(nodePorts, path.Child("nodePort"),
			fmt.Sprintf("%s/%d", port.Protocol, port.NodePort))...)
	}
	return errs
}

// validateServicePort checks a single port, except its nodePort.
func validateServicePort(port *corev1.ServicePort, nameRequired bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case port.Name != "":
		errs = append(errs, invalid(path.Child("name"), port.Name, validation.IsDNS1123Label(port.Name))...)
	case nameRequired:
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	errs = append(errs, validatePort(path.Child("port"), port.Port)...)
	errs = append(errs, validateProtocol(path.Child("protocol"), port.Protocol)...)
	errs = append(errs, validateTargetPort(path.Child("targetPort"), port.TargetPort)...)
	if port.AppProtocol != nil {
		errs = append(errs, invalid(path.Child("appProtocol"), *port.AppProtocol,
			validation.IsQualifiedName(*port.AppProtocol))...)
	}
	return errs
}

// validateTargetPort checks a port number or the name of a port of the Pods.
func validateTargetPort(path *field.Path, target intstr.IntOrString) field.ErrorList {
	if target.Type == intstr.String {
		return invalid(path, target.StrVal, validation.IsValidPortName(target.StrVal))
	}
	return validatePort(path, target.IntVal)
}

// validateNodePort checks a nodePort that is set. It accepts any port: the
// range --service-node-port-range is a flag of the API server.
func validateNodePort(port *corev1.ServicePort, serviceType corev1.ServiceType, path *field.Path) field.ErrorList {
	if serviceType == corev1.ServiceTypeClusterIP {
		return field.ErrorList{field.Forbidden(path, "may not be used when `type` is 'ClusterIP'")}
	}
	return validatePort(path, port.NodePort)
}
