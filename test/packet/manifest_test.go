package packet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"text/template"

	"github.com/nftproxy/nftproxy/test/lab"
)

// service describes a Service and its EndpointSlices. Only the name is
// required. By default a service has TCP and UDP, IPv4 and IPv6, and port 80
// to port 8080 of the endpoints.
type service struct {
	name string
	// metadata and spec are YAML for those fields of the Service. They are
	// templates of a view: {{.ExternalIPs}}.
	metadata, spec string
	// protocols and families are separated by spaces.
	protocols, families string
	ports               []port
	// endpoints are the endpoints of the only slice of each family, unless
	// slices is set.
	endpoints string
	slices    []slice
	// number is the place of the service's addresses in lab.ServiceRanges,
	// lab.ExternalRanges and others, and determines its NodePorts. The
	// default is the next free one.
	number int
}

// port is a port of a service, in all its protocols.
type port struct {
	name           string
	number, target uint16
}

// slice describes an EndpointSlice of each family.
type slice struct {
	// endpoints are names of pods with attributes: "a1
	// b1:terminating,zone=east". See newEndpointView.
	endpoints string
	// weight is the weight of its endpoints; "" for the default.
	weight string
	// target overrides the targets of the service's ports.
	target uint16
	// absent is the number of additional endpoints at unused addresses.
	absent int
	// vip is the number of a service whose ClusterIP is also an endpoint; 0
	// for none.
	vip int
}

// loadBalancerRanges returns the ranges of LoadBalancer IPs. The client
// reaches them through node1.
func loadBalancerRanges() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:1::/64")}
}

// proxyRanges returns the ranges of LoadBalancer IPs with ipMode Proxy.
// Default routes lead to the client.
func proxyRanges() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8:2::/64")}
}

// serviceNumbers is the base of default numbers. Smaller ones are set
// explicitly.
const serviceNumbers = 20

// setDefaults sets the number and the defaults of other fields.
func (s *service) setDefaults(c *cluster) {
	if s.number == 0 {
		c.last++
		s.number = serviceNumbers + c.last
	}
	if s.protocols == "" {
		s.protocols = "TCP UDP"
	}
	if s.families == "" {
		s.families = "IPv4 IPv6"
	}
	if s.ports == nil {
		s.ports = []port{{name: "http", number: 80, target: firstTarget}}
	}
}

// has reports whether the service has the family.
func (s *service) has(f family) bool { return slices.Contains(strings.Fields(s.families), f.String()) }

// address returns the service's address in a range.
func (s *service) address(ranges []netip.Prefix, f family) netip.Addr {
	return lab.AddrIn(ranges[f], s.number)
}

// addresses returns the service's addresses in ranges, by family.
func (s *service) addresses(ranges []netip.Prefix) [2]netip.Addr {
	return [2]netip.Addr{s.address(ranges, ipv4), s.address(ranges, ipv6)}
}

// nodePort returns the NodePort of a port, by its index.
func (s *service) nodePort(i int) uint16 { return uint16(30000 + 10*s.number + i) }

const manifestText = `---
apiVersion: v1
kind: Service
metadata:
  name: {{.Name}}
{{.Metadata}}spec:
{{- with .ClusterIPs}}
  clusterIP: "{{index . 0}}"
  clusterIPs: {{list .}}
{{- if gt (len .) 1}}
  ipFamilyPolicy: RequireDualStack
{{- end}}
{{- end}}
  ports:
{{- range .Ports}}
  - {name: {{.Name}}, protocol: {{.Protocol}}, port: {{.Port}}{{with .NodePort}}, nodePort: {{.}}{{end}}}
{{- end}}
{{.Spec -}}
{{if .LoadBalanced -}}
status:
  loadBalancer:
    ingress:
{{- range .LoadBalancerIPs}}
    - {ip: "{{.}}"}
{{- end}}
{{- range .ProxyIPs}}
    - {ip: "{{.}}", ipMode: Proxy}
{{- end}}
{{end -}}
{{range .Slices -}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {{.Name}}
  labels: {kubernetes.io/service-name: {{$.Name}}}
{{- with .Weight}}
  annotations: {nftproxy.io/weight: "{{.}}"}
{{- end}}
addressType: {{.Family}}
ports:
{{- range .Ports}}
- {name: {{.Name}}, protocol: {{.Protocol}}, port: {{.Target}}}
{{- end}}
endpoints:
{{- range .Endpoints}}
- addresses: ["{{.Address}}"]
{{- with .Node}}
  nodeName: {{.}}
{{- end}}
{{- with .Conditions}}
  conditions: {{.}}
{{- end}}
{{- with .Hints}}
  hints: {{.}}
{{- end}}
{{- else}} []
{{- end}}
{{end}}`

// manifest returns the Service and its EndpointSlices in YAML.
func (s *service) manifest(c *cluster) string {
	c.t.Helper()
	s.setDefaults(c)
	v := view{service: s, cluster: c}
	v.Metadata = indent(v.execute(s.metadata))
	v.Spec = indent(v.execute(s.spec))
	return v.execute(manifestText)
}

// view is the data of a service's templates.
type view struct {
	service        *service
	cluster        *cluster
	Metadata, Spec string
}

func (v view) execute(text string) string {
	var out strings.Builder
	err := template.Must(template.New(v.service.name).Funcs(templateFuncs()).Parse(text)).Execute(&out, v)
	if err != nil {
		v.cluster.t.Fatal(err)
	}
	return out.String()
}

func templateFuncs() template.FuncMap { return template.FuncMap{"list": list[netip.Addr]} }

// indent indents YAML by one level.
func indent(text string) string {
	text = strings.Trim(text, "\n")
	if text == "" {
		return ""
	}
	return "  " + strings.ReplaceAll(text, "\n", "\n  ") + "\n"
}

// Name returns the Service's name.
func (v view) Name() string { return v.service.name }

// addresses returns the service's addresses in ranges, of its families.
func (v view) addresses(ranges []netip.Prefix) []netip.Addr {
	var addrs []netip.Addr
	for _, f := range bothFamilies() {
		if v.service.has(f) {
			addrs = append(addrs, v.service.address(ranges, f))
		}
	}
	return addrs
}

// list returns values as a YAML list.
func list[T any](values []T) string {
	var texts []string
	for _, v := range values {
		texts = append(texts, fmt.Sprintf("%q", fmt.Sprint(v)))
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// ClusterIPs returns spec.clusterIPs. It is empty if the spec has a clusterIP
// or must not have one.
func (v view) ClusterIPs() []netip.Addr {
	if strings.Contains(v.service.spec, "clusterIP") || strings.Contains(v.service.spec, "type: ExternalName") {
		return nil
	}
	return v.addresses(lab.ServiceRanges())
}

// ExternalIPs returns spec.externalIPs.
func (v view) ExternalIPs() string { return list(v.addresses(lab.ExternalRanges())) }

// LoadBalanced reports whether the Service has a load balancer.
func (v view) LoadBalanced() bool { return strings.Contains(v.Spec, "type: LoadBalancer") }

// LoadBalancerIPs returns the load balancer's addresses.
func (v view) LoadBalancerIPs() []netip.Addr { return v.addresses(loadBalancerRanges()) }

// ProxyIPs returns the load balancer's addresses with ipMode Proxy.
func (v view) ProxyIPs() []netip.Addr { return v.addresses(proxyRanges()) }

// Ranges returns prefixes of the addresses of origins only.
func (v view) Ranges(names ...string) string {
	var prefixes []netip.Prefix
	for _, name := range names {
		o := v.cluster.origin(name)
		prefixes = append(prefixes, single(o.source(ipv4)), single(o.source(ipv6)))
	}
	return list(prefixes)
}

type portView struct {
	Name, Protocol         string
	Port, Target, NodePort uint16
}

// Ports returns all ports in all protocols.
func (v view) Ports() []portView {
	var views []portView
	nodePorts := strings.Contains(v.Spec, "type: NodePort") || v.LoadBalanced()
	for i, p := range v.service.ports {
		for _, protocol := range strings.Fields(v.service.protocols) {
			view := portView{
				Name:     p.name + "-" + strings.ToLower(protocol),
				Protocol: protocol, Port: p.number, Target: p.target,
			}
			if nodePorts {
				view.NodePort = v.service.nodePort(i)
			}
			views = append(views, view)
		}
	}
	return views
}

type sliceView struct {
	Name      string
	Weight    string
	Family    family
	Ports     []portView
	Endpoints []endpointView
}

// Slices returns all EndpointSlices.
func (v view) Slices() []sliceView {
	var views []sliceView
	slices := v.service.slices
	if slices == nil && v.service.endpoints != "" {
		slices = []slice{{endpoints: v.service.endpoints}}
	}
	for i, s := range slices {
		ports := v.Ports()
		for j := range ports {
			if s.target != 0 {
				ports[j].Target = s.target
			}
		}
		for _, f := range bothFamilies() {
			name := fmt.Sprintf("%s-%s-%d", v.service.name, strings.ToLower(f.String()), i)
			view := sliceView{Name: name, Weight: s.weight, Family: f, Ports: ports}
			for _, word := range strings.Fields(s.endpoints) {
				view.Endpoints = append(view.Endpoints, newEndpointView(v.cluster.t, v.cluster.pods, f, word))
			}
			if s.vip != 0 {
				clusterIP := (&service{number: s.vip}).address(lab.ServiceRanges(), f)
				view.Endpoints = append(view.Endpoints, endpointView{Address: clusterIP})
			}
			for n := range s.absent {
				view.Endpoints = append(view.Endpoints, endpointView{Address: lab.AddrIn(lab.PodRanges()[f], 0xf000+n)})
			}
			views = append(views, view)
		}
	}
	return views
}

type endpointView struct {
	Address                 netip.Addr
	Node, Conditions, Hints string
}

// newEndpointView parses an endpoint: the name of a pod and, after a colon,
// attributes separated by commas.
func newEndpointView(t testing.TB, pods map[string]*lab.Pod, f family, word string) endpointView {
	name, attributes, _ := strings.Cut(word, ":")
	pod := pods[name]
	if pod == nil {
		t.Fatalf("endpoint %q: unknown pod", word)
	}
	e := endpointView{Address: pod.Addrs()[f], Node: pod.Node.Name}
	var zones, nodes []string
	for _, attribute := range strings.FieldsFunc(attributes, func(r rune) bool { return r == ',' }) {
		key, value, _ := strings.Cut(attribute, "=")
		switch key {
		case "terminating": // and still serving
			e.Conditions = "{ready: false, serving: true, terminating: true}"
		case "stopped": // and not serving
			e.Conditions = "{ready: false, serving: false, terminating: true}"
		case "unready":
			e.Conditions = "{ready: false}"
		case "published": // of a Service with publishNotReadyAddresses
			e.Conditions = "{ready: true, serving: false, terminating: true}"
		case "nowhere":
			e.Node = ""
		case "zone":
			zones = append(zones, "{name: "+value+"}")
		case "node":
			nodes = append(nodes, "{name: "+value+"}")
		default:
			t.Fatalf("endpoint %q: unknown attribute %q", word, key)
		}
	}
	var hints []string
	if zones != nil {
		hints = append(hints, "forZones: ["+strings.Join(zones, ", ")+"]")
	}
	if nodes != nil {
		hints = append(hints, "forNodes: ["+strings.Join(nodes, ", ")+"]")
	}
	if hints != nil {
		e.Hints = "{" + strings.Join(hints, ", ") + "}"
	}
	return e
}
