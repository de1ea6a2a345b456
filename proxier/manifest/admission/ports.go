package admission

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// protocol checks the protocol of a port of a Service or an EndpointSlice.
func (c *checker) protocol(path *field.Path, protocol corev1.Protocol) {
	enum(c, path, protocol, corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP)
}

// servicePorts checks the ports of a Service. Names, pairs of protocol and
// port, and pairs of protocol and nodePort must be unique.
func (c *checker) servicePorts(path *field.Path, spec *corev1.ServiceSpec) {
	if len(spec.Ports) == 0 {
		c.add(field.Required(path, ""))
	}
	names, ports, nodePorts := sets.New[string](), sets.New[string](), sets.New[string]()
	for i := range spec.Ports {
		port, path := &spec.Ports[i], path.Index(i)
		c.portName(path.Child("name"), port.Name, names, len(spec.Ports) > 1)
		c.port(path.Child("port"), port.Port)
		c.protocol(path.Child("protocol"), port.Protocol)
		protocol := cmp.Or(port.Protocol, corev1.ProtocolTCP)
		c.unique(ports, path, fmt.Sprintf("%s/%d", protocol, port.Port))
		if port.NodePort != 0 {
			path = path.Child("nodePort")
			c.nodePort(path, port.NodePort, spec.Type)
			c.unique(nodePorts, path, fmt.Sprintf("%s/%d", protocol, port.NodePort))
		}
	}
}

// portName checks the name of a port of a Service, which is part of the names
// of chains.
func (c *checker) portName(path *field.Path, name string, seen sets.Set[string], required bool) {
	if name != "" {
		c.invalid(path, name, validation.IsDNS1123Label(name)...)
		c.unique(seen, path, name)
	} else if required {
		c.add(field.Required(path, ""))
	}
}

// nodePort checks a nodePort that is set. It accepts any port: the range
// --service-node-port-range is a flag of the API server.
func (c *checker) nodePort(path *field.Path, nodePort int32, serviceType corev1.ServiceType) {
	if serviceType == "" || serviceType == corev1.ServiceTypeClusterIP {
		c.add(field.Forbidden(path, "may not be used when `type` is 'ClusterIP'"))
		return
	}
	c.port(path, nodePort)
}
