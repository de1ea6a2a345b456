package manifest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// parseAll parses data as the only version of a file called web.yaml.
func parseAll(data string) parsed {
	f := file{name: "web.yaml"}.parse(newSerializer(), []byte(data))
	if len(f.problems) > 0 {
		return parsed{problems: f.problems}
	}
	return f.inForce
}

// describe gives the objects, problems and notices in short.
func (p parsed) describe() []string {
	var lines []string
	for _, o := range p.objects {
		lines = append(lines, fmt.Sprintf("%s: %s", o.place, o.key))
	}
	for _, p := range p.problems {
		lines = append(lines, "E "+p.Error())
	}
	for _, n := range p.notices {
		lines = append(lines, fmt.Sprintf("I %s: %s: %s", n.place, n.subject, n.text))
	}
	return lines
}

func expectLines(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

const (
	service       = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n"
	serviceJSON   = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},"spec":{"clusterIP":"10.96.0.1","ports":[{"port":80}]}}`
	endpointSlice = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n" +
		"metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}\n" +
		"addressType: IPv4\nports: [{port: 8080}]\nendpoints: [{addresses: [10.244.1.7]}]\n"
	node        = "apiVersion: v1\nkind: Node\nmetadata: {name: worker}\n"
	serviceCIDR = "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: services}\nspec: {cidrs: [10.96.0.0/16]}\n"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name string
		data string
		want []string
	}{
		{name: "empty file"},
		{name: "empty documents", data: "---\n# nothing\n---\n\n---\nnull\n---\n"},
		{
			name: "all kinds",
			data: strings.Join([]string{service, endpointSlice, node, serviceCIDR}, "---\n"),
			want: []string{
				"web.yaml: document 1: Service default/web",
				"web.yaml: document 2: EndpointSlice default/web-1",
				"web.yaml: document 3: Node worker",
				"web.yaml: document 4: ServiceCIDR services",
			},
		},
		{name: "JSON", data: serviceJSON, want: []string{"web.yaml: document 1: Service default/web"}},
		{name: "JSON with tabs", data: strings.ReplaceAll(serviceJSON, `,"`, ",\n\t\t\""), want: []string{"web.yaml: document 1: Service default/web"}},
		{
			name: "JSON in a row",
			data: serviceJSON + "\n" + strings.Replace(serviceJSON, "web", "api", 1),
			want: []string{"web.yaml: document 1: Service default/web", "web.yaml: document 2: Service default/api"},
		},
		{
			name: "namespaces",
			data: "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: None}}\n---\n" +
				"{apiVersion: v1, kind: Node, metadata: {name: worker, namespace: ignored}}\n",
			want: []string{"web.yaml: document 1: Service shop/web", "web.yaml: document 2: Node worker"},
		},
		{
			name: "list",
			data: "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: ''}\nitems:\n- {apiVersion: v1, kind: Node, metadata: {name: a}}\n" +
				"- {apiVersion: v1, kind: Pod, metadata: {name: b}}\n- {apiVersion: v1, kind: Node, metadata: {name: c}}\n",
			want: []string{
				"web.yaml: document 1: items[0]: Node a",
				"web.yaml: document 1: items[2]: Node c",
				"I web.yaml: document 1: items[1]: v1 Pod b: Skipped an object of a kind that is not read",
			},
		},
		{
			name: "typed lists",
			data: "apiVersion: v1\nkind: ServiceList\nitems:\n- {metadata: {name: a}, spec: {clusterIP: None}}\n---\n" +
				"apiVersion: v1\nkind: NodeList\nitems:\n- {metadata: {name: a}}\n---\n" +
				"apiVersion: discovery.k8s.io/v1\nkind: EndpointSliceList\nitems:\n" +
				"- {metadata: {name: a, labels: {kubernetes.io/service-name: a}}, addressType: IPv6, endpoints: null}\n---\n" +
				"apiVersion: networking.k8s.io/v1\nkind: ServiceCIDRList\nitems:\n- {metadata: {name: a}, spec: {cidrs: ['fd00::/108']}}\n",
			want: []string{
				"web.yaml: document 1: items[0]: Service default/a",
				"web.yaml: document 2: items[0]: Node a",
				"web.yaml: document 3: items[0]: EndpointSlice default/a",
				"web.yaml: document 4: items[0]: ServiceCIDR a",
			},
		},
		{name: "empty lists", data: "{apiVersion: v1, kind: List}\n---\n{apiVersion: v1, kind: ServiceList, items: []}\n"},
		{
			name: "other kinds",
			data: "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop, nonsense: 1}}\n---\n" +
				"{apiVersion: discovery.k8s.io/v1beta1, kind: EndpointSlice, metadata: {name: web-1}}\n---\n" +
				"{apiVersion: v1, kind: ConfigMapList, items: []}\n",
			want: []string{
				"I web.yaml: document 1: apps/v1 Deployment shop/web: Skipped an object of a kind that is not read",
				"I web.yaml: document 2: discovery.k8s.io/v1beta1 EndpointSlice default/web-1: Skipped an object of a kind that is not read",
				"I web.yaml: document 3: v1 ConfigMapList: Skipped an object of a kind that is not read",
			},
		},
		{
			name: "merge keys may be overridden",
			data: "apiVersion: v1\nkind: Node\nmetadata:\n  name: worker\n  labels: &base {a: '1', b: '2'}\n" +
				"  annotations:\n    <<: *base\n    a: '3'\n",
			want: []string{"web.yaml: document 1: Node worker"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			expectLines(t, parseAll(test.data).describe(), test.want)
		})
	}
}

func TestParseErrors(t *testing.T) {
	tests := []struct {
		name string
		data string
		want []string
	}{
		{
			name: "YAML syntax, in the lines of the file",
			data: node + "---\n" + "apiVersion: v1\nkind: [\n",
			want: []string{"web.yaml: document 2: yaml: line 6: did not find expected node content"},
		},
		{
			name: "every broken document is named",
			data: "kind: [\n---\n" + node + "---\na: b: c\n",
			want: []string{
				"web.yaml: document 1: yaml: line 1: did not find expected node content",
				"web.yaml: document 3: yaml: mapping values are not allowed in this context",
			},
		},
		{
			name: "JSON syntax",
			data: "{\"apiVersion\": \"v1\",\n\"kind\" \"Service\"}",
			want: []string{"web.yaml: document 1: line 2: invalid character '\"' after object key"},
		},
		{
			name: "duplicate keys in YAML",
			data: "---\n" + node + "spec: {}\nspec: {podCIDR: 10.244.0.0/24}\nstatus: {}\nstatus: {}\n",
			want: []string{`web.yaml: document 1: yaml: line 6: key "spec" already set in map; line 8: key "status" already set in map`},
		},
		{
			name: "duplicate keys in JSON",
			data: `{"apiVersion":"v1","kind":"Node","metadata":{"name":"worker","name":"boss"}}`,
			want: []string{`web.yaml: document 1: Node boss: duplicate field "metadata.name"`},
		},
		{
			name: "duplicate keys beside merge keys",
			data: "apiVersion: v1\nkind: Node\nmetadata:\n  name: worker\n  labels: &base {a: '1'}\n  annotations: {<<: *base, b: '1', b: '2'}\n",
			want: []string{`web.yaml: document 1: yaml: line 6: key "b" already set in map`},
		},
		{
			name: "unknown fields, each by itself",
			data: "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIp: 10.96.0.1, ports: [{port: 80, proto: TCP}]}\n",
			want: []string{
				`web.yaml: document 1: Service default/web: unknown field "spec.clusterIp"`,
				`web.yaml: document 1: Service default/web: unknown field "spec.ports[0].proto"`,
			},
		},
		{
			name: "wrong type",
			data: "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: '80'}]}\n",
			want: []string{"web.yaml: document 1: Service default/web: json: cannot unmarshal string into Go struct field ServicePort.spec.ports.port of type int32"},
		},
		{name: "no kind", data: "apiVersion: v1\nmetadata: {name: web}\n", want: []string{"web.yaml: document 1: kind is missing"}},
		{name: "no apiVersion", data: "kind: Service\nmetadata: {name: web}\n", want: []string{"web.yaml: document 1: Service default/web: apiVersion is missing"}},
		{name: "no apiVersion that there can be", data: "apiVersion: a/b/c\nkind: Service\n", want: []string{"web.yaml: document 1: Service: unexpected GroupVersion string: a/b/c"}},
		{name: "no object", data: "just text\n---\n- 1\n- 2\n", want: []string{"web.yaml: document 1: not an object", "web.yaml: document 2: not an object"}},
		{
			name: "items",
			data: "apiVersion: v1\nkind: List\nitems:\n- {metadata: {name: a}}\n- null\n- {apiVersion: v1, kind: List, items: []}\n" +
				"- {apiVersion: v1, kind: Node, metadata: {name: a, nome: b}}\n",
			want: []string{
				"web.yaml: document 1: items[0]: kind is missing",
				"web.yaml: document 1: items[1]: not an object",
				"web.yaml: document 1: items[2]: a list in a list",
				`web.yaml: document 1: items[3]: Node a: unknown field "metadata.nome"`,
			},
		},
		{
			name: "unknown field of a list",
			data: "{apiVersion: v1, kind: List, item: []}\n",
			want: []string{`web.yaml: document 1: List: unknown field "item"`},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			expectLines(t, parseAll(test.data).describe(), prefixed("E ", test.want))
		})
	}
}

func prefixed(prefix string, lines []string) []string {
	var result []string
	for _, line := range lines {
		result = append(result, prefix+line)
	}
	return result
}

func TestNotices(t *testing.T) {
	tests := []struct {
		name string
		spec string
		want []string
	}{
		{name: "ClusterIP given", spec: "{clusterIP: 10.96.0.1, ports: [{port: 80}]}"},
		{name: "headless", spec: "{clusterIP: None}"},
		{name: "ExternalName", spec: "{type: ExternalName, externalName: example.com}"},
		{name: "no ClusterIP", spec: "{externalIPs: [192.0.2.1], ports: [{port: 80}]}", want: []string{noticeNoClusterIP}},
		{
			name: "no NodePort, said once",
			spec: "{type: NodePort, clusterIP: 10.96.0.1, ports: [{name: a, port: 80}, {name: b, port: 81}, {name: c, port: 82, nodePort: 82}]}",
			want: []string{noticeNoNodePort},
		},
		{name: "NodePort given", spec: "{type: NodePort, clusterIP: 10.96.0.1, ports: [{port: 80, nodePort: 80}]}"},
		{name: "load balancers need no NodePort", spec: "{type: LoadBalancer, clusterIP: 10.96.0.1, ports: [{port: 80}]}"},
		{
			name: "no health check",
			spec: "{type: LoadBalancer, externalTrafficPolicy: Local, clusterIP: 10.96.0.1, ports: [{port: 80}]}",
			want: []string{noticeNoHealthCheck},
		},
		{
			name: "health check given",
			spec: "{type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30001, clusterIP: 10.96.0.1, ports: [{port: 80}]}",
		},
		{
			name: "status of another type",
			spec: "{clusterIP: 10.96.0.1, ports: [{port: 80}]}\nstatus: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}",
			want: []string{noticeNoStatus},
		},
		{name: "empty status", spec: "{clusterIP: 10.96.0.1, ports: [{port: 80}]}\nstatus: {loadBalancer: {}}"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			want := []string{"web.yaml: document 1: Service default/web"}
			want = append(want, prefixed("I web.yaml: document 1: Service default/web: ", test.want)...)
			got := parseAll("apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: " + test.spec + "\n")
			expectLines(t, got.describe(), want)
		})
	}
}

func TestEndpointSliceWithoutService(t *testing.T) {
	data := "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1}\naddressType: IPv4\n"
	expectLines(t, parseAll(data).describe(), []string{
		"I web.yaml: document 1: EndpointSlice default/web-1: Skipped an EndpointSlice without the label kubernetes.io/service-name",
	})
	expectLines(t, parseAll(data+"ports: [{port: 70000}]\n").describe(), []string{
		"E web.yaml: document 1: EndpointSlice default/web-1: ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive",
	})
}
