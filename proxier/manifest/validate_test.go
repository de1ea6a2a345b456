package manifest

import (
	"fmt"
	"strings"
	"testing"
)

func TestValidateEndpointSlice(t *testing.T) {
	tests := []struct {
		name string
		body string
		want []string
	}{
		{name: "IPv4", body: "addressType: IPv4\nports: [{port: 80}]\nendpoints: [{addresses: [10.244.1.7], nodeName: worker.example.com, zone: a, hostname: web-0}]"},
		{name: "IPv6", body: "addressType: IPv6\nendpoints: [{addresses: ['fd00::7']}]"},
		{name: "further addresses", body: "addressType: IPv4\nendpoints: [{addresses: [10.244.1.7, 10.244.1.8]}]"},
		{name: "FQDN", body: "addressType: FQDN\nendpoints: [{addresses: [a.example.com]}]"},
		{name: "hints", body: "addressType: IPv4\nendpoints: [{addresses: [10.244.1.7], hints: {forZones: [{name: a}, {name: b}], forNodes: [{name: worker}]}}]"},
		{name: "no address type", body: "endpoints: [{addresses: [here]}]", want: []string{"addressType: Required value"}},
		{name: "address type", body: "addressType: IPv5", want: []string{`addressType: Unsupported value: "IPv5": supported values: "FQDN", "IPv4", "IPv6"`}},
		{
			name: "ports",
			body: "addressType: IPv4\nports: [{port: 80}, {port: 81}, {name: B, port: 0}, {name: c, port: 65536, protocol: icmp, appProtocol: ''}]",
			want: []string{
				`ports[1].name: Duplicate value: ""`,
				`ports[2].name: Invalid value: "B": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
				"ports[2].port: Invalid value: 0: must be between 1 and 65535, inclusive",
				`ports[3].protocol: Unsupported value: "icmp": supported values: "SCTP", "TCP", "UDP"`,
				"ports[3].port: Invalid value: 65536: must be between 1 and 65535, inclusive",
				`ports[3].appProtocol: Invalid value: "": name part must be non-empty`,
				`ports[3].appProtocol: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
			},
		},
		{
			name: "IPv4 addresses",
			body: "addressType: IPv4\nendpoints: [{addresses: [10.244.1, 'fd00::7', 127.0.0.1, 0.0.0.0]}, {addresses: [169.254.1.1, 010.0.0.1]}, {addresses: []}]",
			want: []string{
				`endpoints[0].addresses[0]: Invalid value: "10.244.1": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
				`endpoints[0].addresses[1]: Invalid value: "fd00::7": must be an IPv4 address`,
				`endpoints[0].addresses[2]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`,
				`endpoints[0].addresses[3]: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0)`,
				`endpoints[1].addresses[0]: Invalid value: "169.254.1.1": may not be in the link-local range (169.254.0.0/16, fe80::/10)`,
				`endpoints[1].addresses[1]: Invalid value: "010.0.0.1": must not have leading 0s`,
				"endpoints[2].addresses: Required value: must contain at least 1 address",
			},
		},
		{
			name: "IPv6 addresses",
			body: "addressType: IPv6\nendpoints: [{addresses: [10.244.1.7, 'FD00::7', '::1', 'ff02::1', 'fe80::1%eth0']}]",
			want: []string{
				`endpoints[0].addresses[0]: Invalid value: "10.244.1.7": must be an IPv6 address`,
				`endpoints[0].addresses[1]: Invalid value: "FD00::7": must be in canonical form ("fd00::7")`,
				`endpoints[0].addresses[2]: Invalid value: "::1": may not be in the loopback range (127.0.0.0/8, ::1/128)`,
				`endpoints[0].addresses[3]: Invalid value: "ff02::1": may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)`,
				`endpoints[0].addresses[4]: Invalid value: "fe80::1%eth0": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
			},
		},
		{
			name: "FQDN addresses",
			body: "addressType: FQDN\nendpoints: [{addresses: [local]}]",
			want: []string{`endpoints[0].addresses[0]: Invalid value: "local": should be a domain with at least two segments separated by dots`},
		},
		{
			name: "too many addresses",
			body: "addressType: IPv4\nendpoints: [{addresses: [" + repeat(101, "10.0.0.%d") + "]}]",
			want: []string{"endpoints[0].addresses: Too many: 101: must have at most 100 items"},
		},
		{
			name: "too many endpoints",
			body: "addressType: IPv4\nendpoints: [" + repeat(1001, "{hostname: h%d}") + "]",
			want: []string{"endpoints: Too many: 1001: must have at most 1000 items"},
		},
		{
			name: "names",
			body: "addressType: IPv4\nendpoints: [{addresses: [10.0.0.1], nodeName: Worker, hostname: web.0}]",
			want: []string{
				`endpoints[0].nodeName: Invalid value: "Worker": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
				`endpoints[0].hostname: Invalid value: "web.0": must not contain dots`,
			},
		},
		{
			name: "hints",
			body: "addressType: IPv4\nendpoints: [{addresses: [10.0.0.1], hints: {forZones: [{name: a}, {name: a}], forNodes: [{name: ''}]}}, " +
				"{addresses: [10.0.0.2], hints: {forZones: [" + repeat(9, "{name: z%d}") + "], forNodes: [" + repeat(9, "{name: n%d}") + "]}}]",
			want: []string{
				`endpoints[0].hints.forZones[1].name: Duplicate value: "a"`,
				`endpoints[0].hints.forNodes[0].name: Invalid value: "": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
				"endpoints[1].hints.forZones: Too many: 9: must have at most 8 items",
				"endpoints[1].hints.forNodes: Too many: 9: must have at most 8 items",
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := parseAll("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1, labels: {kubernetes.io/service-name: web}}\n" + test.body + "\n")
			expectProblems(t, got, "web.yaml: document 1: EndpointSlice default/web-1: ", test.want)
		})
	}
}

// repeat gives count elements of a YAML list.
func repeat(count int, format string) string {
	var elements []string
	for i := range count {
		elements = append(elements, fmt.Sprintf(format, i+1))
	}
	return strings.Join(elements, ", ")
}

func TestValidateNode(t *testing.T) {
	tests := []struct {
		name string
		body string
		want []string
	}{
		{name: "bare", body: "spec: {}"},
		{
			name: "complete",
			body: "spec: {podCIDRs: ['fd00:1::/64', 10.244.1.0/24]}\n" +
				"status: {addresses: [{type: InternalIP, address: 192.0.2.1}, {type: InternalIP, address: '2001:db8::1'}, {type: Hostname, address: worker}]}",
		},
		{
			name: "pod CIDRs",
			body: "spec: {podCIDRs: [10.244.1.1/24, 10.244.2.0]}",
			want: []string{
				`spec.podCIDRs[0]: Invalid value: "10.244.1.1/24": must not have bits set beyond the prefix length`,
				`spec.podCIDRs[1]: Invalid value: "10.244.2.0": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`,
			},
		},
		{
			name: "pod CIDRs of one family",
			body: "spec: {podCIDRs: [10.244.1.0/24, 10.244.2.0/24]}",
			want: []string{`spec.podCIDRs: Invalid value: ["10.244.1.0/24","10.244.2.0/24"]: may specify no more than one CIDR for each IP family`},
		},
		{
			name: "addresses",
			body: "status: {addresses: [{type: InternalIP, address: worker}, {type: Hostname, address: worker}, {type: Hostname, address: worker}]}",
			want: []string{
				`status.addresses[0].address: Invalid value: "worker": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
				`status.addresses[2]: Duplicate value: {"type":"Hostname","address":"worker"}`,
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := parseAll("apiVersion: v1\nkind: Node\nmetadata: {name: worker}\n" + test.body + "\n")
			expectProblems(t, got, "web.yaml: document 1: Node worker: ", test.want)
		})
	}
}

func TestValidateServiceCIDR(t *testing.T) {
	tests := []struct {
		name  string
		cidrs string
		want  []string
	}{
		{name: "one", cidrs: "[10.96.0.0/16]"},
		{name: "dual stack", cidrs: "['fd00::/108', 10.96.0.0/16]"},
		{name: "none", cidrs: "[]", want: []string{"spec.cidrs: Required value: at least one CIDR required"}},
		{
			name: "three", cidrs: "[10.0.0.0/24, 10.0.1.0/24, 'fd00::/108']",
			want: []string{`spec.cidrs: Invalid value: ["10.0.0.0/24","10.0.1.0/24","fd00::/108"]: may only hold up to 2 values`},
		},
		{
			name: "one family", cidrs: "[10.0.0.0/24, 10.0.1.0/24]",
			want: []string{`spec.cidrs: Invalid value: ["10.0.0.0/24","10.0.1.0/24"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64`},
		},
		{
			name: "not canonical", cidrs: "['FD00::/108', 10.96.0.1/16]",
			want: []string{
				`spec.cidrs[0]: Invalid value: "FD00::/108": must be in canonical form ("fd00::/108")`,
				`spec.cidrs[1]: Invalid value: "10.96.0.1/16": must not have bits set beyond the prefix length`,
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := parseAll("apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: services}\nspec: {cidrs: " + test.cidrs + "}\n")
			expectProblems(t, got, "web.yaml: document 1: ServiceCIDR services: ", test.want)
		})
	}
}
