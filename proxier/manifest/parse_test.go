package manifest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// parseAll parses data as the only version of the file web.yaml.
func parseAll(data string) parsed {
	f := file{name: "web.yaml"}.parse(newDecoder(), []byte(data))
	if len(f.problems) > 0 {
		return parsed{problems: f.problems}
	}
	return f.active
}

// describe returns a line for each object, problem and warning.
func (p parsed) describe() []string {
	var lines []string
	for _, o := range p.objects {
		lines = append(lines, fmt.Sprintf("%s: %s", o.place, o.key))
	}
	for _, p := range p.problems {
		lines = append(lines, "E "+p.Error())
	}
	for _, w := range p.warnings {
		lines = append(lines, fmt.Sprintf("W %s: %s: %s", w.place, w.subject, w.text))
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
	service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n" +
		"spec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n"
	serviceJSON = `{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"},` +
		`"spec":{"clusterIP":"10.96.0.1","ports":[{"port":80}]}}`
	endpointSlice = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n" +
		"metadata: {name: web-1, labels: {kubernetes.io/service-name: web}}\n" +
		"addressType: IPv4\nports: [{port: 8080}]\nendpoints: [{addresses: [10.244.1.7]}]\n"
	node        = "apiVersion: v1\nkind: Node\nmetadata: {name: worker}\n"
	serviceCIDR = "apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: services}\n" +
		"spec: {cidrs: [10.96.0.0/16]}\n"
)

// parseTest is a test of a file. Tests of this type state the expected lines
// of describe without the prefix "web.yaml: document ".
type parseTest struct {
	name string
	data string
	want []string
}

func (test parseTest) run(t *testing.T) {
	t.Run(test.name, func(t *testing.T) {
		got := parseAll(test.data).describe()
		for i := range got {
			got[i] = strings.Replace(got[i], "web.yaml: document ", "", 1)
		}
		expectLines(t, got, test.want)
	})
}

func TestParse(t *testing.T) {
	for _, test := range []parseTest{
		{name: "empty file"},
		{name: "empty documents", data: "---\n# comment\n---\n\n---\nnull\n---\n"},
		{
			name: "all kinds",
			data: documents(service, endpointSlice, node, serviceCIDR),
			want: []string{
				"1: Service default/web",
				"2: EndpointSlice default/web-1",
				"3: Node worker",
				"4: ServiceCIDR services",
			},
		},
		{name: "JSON", data: serviceJSON, want: []string{"1: Service default/web"}},
		{
			name: "JSON with tabs",
			data: strings.ReplaceAll(serviceJSON, `,"`, ",\n\t\t\""),
			want: []string{"1: Service default/web"},
		},
		{
			name: "sequence of JSON values",
			data: serviceJSON + "\n" + strings.Replace(serviceJSON, "web", "api", 1),
			want: []string{"1: Service default/web", "2: Service default/api"},
		},
		{
			name: "namespaces",
			data: documents(
				"{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {clusterIP: None}}\n",
				"{apiVersion: v1, kind: Node, metadata: {name: worker, namespace: ignored}}\n",
			),
			want: []string{"1: Service shop/web", "2: Node worker"},
		},
		{
			name: "merge key with an override",
			data: "apiVersion: v1\nkind: Node\nmetadata:\n  name: worker\n  labels: &base {a: '1', b: '2'}\n" +
				"  annotations:\n    <<: *base\n    a: '3'\n",
			want: []string{"1: Node worker"},
		},
	} {
		test.run(t)
	}
}

func TestParseLists(t *testing.T) {
	for _, test := range []parseTest{
		{
			name: "list",
			data: "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: ''}\nitems:\n" +
				"- {apiVersion: v1, kind: Node, metadata: {name: a}}\n" +
				"- {apiVersion: v1, kind: Pod, metadata: {name: b}}\n" +
				"- {apiVersion: v1, kind: Node, metadata: {name: c}}\n",
			want: []string{
				"1: items[0]: Node a",
				"1: items[2]: Node c",
				"W 1: items[1]: v1 Pod b: Skipped an object of an unsupported kind",
			},
		},
		{
			name: "typed lists",
			data: documents(
				"apiVersion: v1\nkind: ServiceList\nitems:\n- {metadata: {name: a}, spec: {clusterIP: None}}\n",
				"apiVersion: v1\nkind: NodeList\nitems:\n- {metadata: {name: a}}\n",
				"apiVersion: discovery.k8s.io/v1\nkind: EndpointSliceList\nitems:\n"+
					"- metadata: {name: a, labels: {kubernetes.io/service-name: a}}\n"+
					"  addressType: IPv6\n  endpoints: null\n",
				"apiVersion: networking.k8s.io/v1\nkind: ServiceCIDRList\nitems:\n"+
					"- {metadata: {name: a}, spec: {cidrs: ['fd00::/108']}}\n",
			),
			want: []string{
				"1: items[0]: Service default/a",
				"2: items[0]: Node a",
				"3: items[0]: EndpointSlice default/a",
				"4: items[0]: ServiceCIDR a",
			},
		},
		{
			name: "empty lists",
			data: "{apiVersion: v1, kind: List}\n---\n{apiVersion: v1, kind: ServiceList, items: []}\n",
		},
		{
			name: "invalid items",
			data: "apiVersion: v1\nkind: List\nitems:\n" +
				"- {metadata: {name: a}}\n" +
				"- null\n" +
				"- {apiVersion: v1, kind: List, items: []}\n" +
				"- {apiVersion: v1, kind: Node, metadata: {name: a, nome: b}}\n",
			want: []string{
				"E 1: items[0]: kind is missing",
				"E 1: items[1]: not an object",
				"E 1: items[2]: a list in a list is not supported",
				`E 1: items[3]: Node a: unknown field "metadata.nome"`,
			},
		},
		{
			name: "unknown field of a list",
			data: "{apiVersion: v1, kind: List, item: []}\n",
			want: []string{`E 1: List: unknown field "item"`},
		},
	} {
		test.run(t)
	}
}

func TestParseErrors(t *testing.T) {
	for _, test := range []parseTest{
		{
			name: "YAML syntax error with the line of the file",
			data: node + "---\n" + "apiVersion: v1\nkind: [\n",
			want: []string{"E 2: yaml: line 6: did not find expected node content"},
		},
		{
			name: "two invalid documents",
			data: "kind: [\n---\n" + node + "---\na: b: c\n",
			want: []string{
				"E 1: yaml: line 1: did not find expected node content",
				"E 3: yaml: mapping values are not allowed in this context",
			},
		},
		{
			name: "JSON syntax error",
			data: "{\"apiVersion\": \"v1\",\n\"kind\" \"Service\"}",
			want: []string{"E 1: line 2: invalid character '\"' after object key"},
		},
		{
			name: "duplicate keys in YAML",
			data: "---\n" + node + "spec: {}\nspec: {podCIDR: 10.244.0.0/24}\nstatus: {}\nstatus: {}\n",
			want: []string{
				`E 1: yaml: line 6: key "spec" already set in map; line 8: key "status" already set in map`,
			},
		},
		{
			name: "duplicate keys in JSON",
			data: `{"apiVersion":"v1","kind":"Node","metadata":{"name":"worker","name":"boss"}}`,
			want: []string{`E 1: Node boss: duplicate field "metadata.name"`},
		},
		{
			name: "duplicate keys beside a merge key",
			data: "apiVersion: v1\nkind: Node\nmetadata:\n  name: worker\n  labels: &base {a: '1'}\n" +
				"  annotations: {<<: *base, b: '1', b: '2'}\n",
			want: []string{`E 1: yaml: line 6: key "b" already set in map`},
		},
		{
			name: "two unknown fields",
			data: "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n" +
				"spec: {clusterIp: 10.96.0.1, ports: [{port: 80, proto: TCP}]}\n",
			want: []string{
				`E 1: Service default/web: unknown field "spec.clusterIp"`,
				`E 1: Service default/web: unknown field "spec.ports[0].proto"`,
			},
		},
		{
			name: "wrong type",
			data: "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: '80'}]}\n",
			want: []string{"E 1: Service default/web: json: cannot unmarshal string into " +
				"Go struct field ServicePort.spec.ports.port of type int32"},
		},
		{
			name: "two invalid fields",
			data: "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: web}\nspec: {ports: [{protocol: " +
				"tcp}]}\n",
			want: []string{
				"E 1: Service shop/web: spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
				`E 1: Service shop/web: spec.ports[0].protocol: Unsupported value: "tcp": ` +
					`supported values: "SCTP", "TCP", "UDP"`,
			},
		},
		{
			name: "no name",
			data: "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop}\nspec: {clusterIP: None}\n",
			want: []string{"E 1: Service shop/: metadata.name: Required value"},
		},
		{name: "no kind", data: "apiVersion: v1\nmetadata: {name: web}\n", want: []string{"E 1: kind is missing"}},
		{
			name: "no apiVersion",
			data: "kind: Service\nmetadata: {name: web}\n",
			want: []string{"E 1: Service default/web: apiVersion is missing"},
		},
		{
			name: "invalid apiVersion",
			data: "apiVersion: a/b/c\nkind: Service\n",
			want: []string{"E 1: Service: unexpected GroupVersion string: a/b/c"},
		},
		{
			name: "not an object",
			data: "just text\n---\n- 1\n- 2\n",
			want: []string{"E 1: not an object", "E 2: not an object"},
		},
	} {
		test.run(t)
	}
}

func TestParseWarnings(t *testing.T) {
	const sliceWithoutService = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1}\n" +
		"addressType: IPv4\n"
	for _, test := range []parseTest{
		{
			name: "unsupported kinds",
			data: documents(
				"{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop, unknown: 1}}\n",
				"{apiVersion: discovery.k8s.io/v1beta1, kind: EndpointSlice, metadata: {name: web-1}}\n",
				"{apiVersion: v1, kind: ConfigMapList, items: []}\n",
			),
			want: []string{
				"W 1: apps/v1 Deployment shop/web: Skipped an object of an unsupported kind",
				"W 2: discovery.k8s.io/v1beta1 EndpointSlice default/web-1: Skipped an object of an unsupported kind",
				"W 3: v1 ConfigMapList: Skipped an object of an unsupported kind",
			},
		},
		{
			name: "warning of a Service",
			data: "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n",
			want: []string{
				"1: Service default/web",
				"W 1: Service default/web: Service has no clusterIP, serving its other addresses only",
			},
		},
		{
			name: "EndpointSlice without Service",
			data: sliceWithoutService,
			want: []string{"W 1: EndpointSlice default/web-1: " +
				"Skipped an EndpointSlice without the label kubernetes.io/service-name"},
		},
		{
			name: "invalid EndpointSlice without Service",
			data: sliceWithoutService + "ports: [{port: 70000}]\n",
			want: []string{"E 1: EndpointSlice default/web-1: " +
				"ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive"},
		},
	} {
		test.run(t)
	}
}
