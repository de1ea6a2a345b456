package manifest

import "testing"

func TestValidateService(t *testing.T) {
	tests := []struct {
		name string
		spec string
		want []string
	}{
		{name: "many ports", spec: "{clusterIP: 10.96.0.1, ports: [{name: a, port: 53}, {name: b, port: 53, protocol: UDP}, {name: c, port: 65535, protocol: SCTP}]}"},
		{name: "dual stack", spec: "{clusterIPs: [10.96.0.1, 'fd00::1'], ipFamilyPolicy: PreferDualStack, ports: [{port: 80}]}"},
		{name: "IPv6 spelled out", spec: "{clusterIP: 'FD00:0::1', ports: [{port: 80}]}"},
		{name: "external IPs", spec: "{clusterIP: 10.96.0.1, externalIPs: [192.0.2.1, '2001:db8::1', 239.1.2.3], ports: [{port: 80}]}"},
		{name: "source ranges with spaces", spec: "{type: LoadBalancer, loadBalancerSourceRanges: [' 192.0.2.0/24 ', '2001:db8::/32'], ports: [{port: 80}]}"},
		{name: "node port below the usual range", spec: "{type: NodePort, ports: [{port: 80, nodePort: 80}]}"},
		{name: "same node port for two protocols", spec: "{type: NodePort, ports: [{name: a, port: 53, nodePort: 53}, {name: b, port: 53, nodePort: 53, protocol: UDP}]}"},
		{name: "longest affinity", spec: "{sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86400}}, ports: [{port: 80}]}"},
		{name: "no ports", spec: "{clusterIP: 10.96.0.1}", want: []string{"spec.ports: Required value"}},
		{name: "no ports are fine for headless services", spec: "{clusterIP: None}"},
		{
			name: "port numbers",
			spec: "{clusterIP: 10.96.0.1, ports: [{name: a, port: 70000, targetPort: 80}, {name: b, targetPort: 80}, {name: c, port: 80, targetPort: -1}, {name: d, port: 81, targetPort: no_name}]}",
			want: []string{
				"spec.ports[0].port: Invalid value: 70000: must be between 1 and 65535, inclusive",
				"spec.ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive",
				"spec.ports[2].targetPort: Invalid value: -1: must be between 1 and 65535, inclusive",
				`spec.ports[3].targetPort: Invalid value: "no_name": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)`,
			},
		},
		{
			name: "port names",
			spec: "{clusterIP: 10.96.0.1, ports: [{port: 80}, {name: a, port: 81}, {name: a, port: 82}, {name: A, port: 83}]}",
			want: []string{
				"spec.ports[0].name: Required value",
				`spec.ports[2].name: Duplicate value: "a"`,
				`spec.ports[3].name: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
			},
		},
		{
			name: "the same port twice",
			spec: "{clusterIP: 10.96.0.1, ports: [{name: a, port: 80}, {name: b, port: 80, protocol: TCP}]}",
			want: []string{`spec.ports[1]: Duplicate value: "TCP/80"`},
		},
		{
			name: "protocols",
			spec: "{clusterIP: 10.96.0.1, ports: [{port: 80, protocol: tcp}]}",
			want: []string{`spec.ports[0].protocol: Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP"`},
		},
		{
			name: "node port of a ClusterIP service",
			spec: "{clusterIP: 10.96.0.1, ports: [{port: 80, nodePort: 30080}]}",
			want: []string{"spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"},
		},
		{
			name: "node ports",
			spec: "{type: NodePort, clusterIP: 10.96.0.1, ports: [{name: a, port: 80, nodePort: 65536}, {name: b, port: 81, nodePort: 30080}, {name: c, port: 82, nodePort: 30080}, {name: d, port: 83, nodePort: -1}]}",
			want: []string{
				"spec.ports[0].nodePort: Invalid value: 65536: must be between 1 and 65535, inclusive",
				`spec.ports[2].nodePort: Duplicate value: "TCP/30080"`,
				"spec.ports[3].nodePort: Invalid value: -1: must be between 1 and 65535, inclusive",
			},
		},
		{
			name: "appProtocol",
			spec: "{clusterIP: 10.96.0.1, ports: [{name: a, port: 80, appProtocol: kubernetes.io/h2c}, {name: b, port: 81, appProtocol: a b}]}",
			want: []string{`spec.ports[1].appProtocol: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		},
		{
			name: "type",
			spec: "{type: Cluster, clusterIP: 10.96.0.1, ports: [{port: 80}]}",
			want: []string{`spec.type: Unsupported value: "Cluster": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"`},
		},
		{
			name: "headless load balancer",
			spec: "{type: LoadBalancer, clusterIP: None, ports: [{port: 80}]}",
			want: []string{`spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for LoadBalancer services`},
		},
		{
			name: "headless node port",
			spec: "{type: NodePort, clusterIP: None, ports: [{port: 80}]}",
			want: []string{`spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for NodePort services`},
		},
		{
			name: "external name with addresses",
			spec: "{type: ExternalName, externalName: example.com, clusterIP: 10.96.0.1, ipFamilies: [IPv4], ipFamilyPolicy: SingleStack}",
			want: []string{
				"spec.clusterIPs: Forbidden: may not be set for ExternalName services",
				"spec.ipFamilies: Forbidden: may not be set for ExternalName services",
				"spec.ipFamilyPolicy: Forbidden: may not be set for ExternalName services",
			},
		},
		{name: "no external name", spec: "{type: ExternalName}", want: []string{"spec.externalName: Required value"}},
		{
			name: "not an external name",
			spec: "{type: ExternalName, externalName: -.example.com}",
			want: []string{`spec.externalName: Invalid value: "-.example.com": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`},
		},
		{
			name: "clusterIP",
			spec: "{clusterIP: 10.96.0, ports: [{port: 80}]}",
			want: []string{`spec.clusterIPs[0]: Invalid value: "10.96.0": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`},
		},
		{
			name: "clusterIP in another spelling",
			spec: "{clusterIPs: [010.96.0.1, '::ffff:10.96.0.1'], ports: [{port: 80}]}",
			want: []string{
				`spec.clusterIPs[0]: Invalid value: "010.96.0.1": must not have leading 0s`,
				`spec.clusterIPs[1]: Invalid value: "::ffff:10.96.0.1": must not be an IPv4-mapped IPv6 address`,
			},
		},
		{
			name: "clusterIP and clusterIPs disagree",
			spec: "{clusterIP: 10.96.0.1, clusterIPs: [10.96.0.2], ports: [{port: 80}]}",
			want: []string{"spec.clusterIPs: Invalid value: [\"10.96.0.2\"]: first value must match `clusterIP`"},
		},
		{
			name: "two of a family",
			spec: "{clusterIPs: [10.96.0.1, 10.96.0.2], ports: [{port: 80}]}",
			want: []string{`spec.clusterIPs: Invalid value: ["10.96.0.1","10.96.0.2"]: may specify no more than one IP for each IP family`},
		},
		{
			name: "three clusterIPs",
			spec: "{clusterIPs: [10.96.0.1, 'fd00::1', 10.96.0.2], ipFamilies: [IPv4, IPv6], ports: [{port: 80}]}",
			want: []string{
				`spec.clusterIPs: Invalid value: ["10.96.0.1","fd00::1","10.96.0.2"]: may only hold up to 2 values`,
				`spec.clusterIPs: Invalid value: ["10.96.0.1","fd00::1","10.96.0.2"]: may specify no more than one IP for each IP family`,
			},
		},
		{
			name: "None and more",
			spec: "{clusterIPs: [None, 10.96.0.1], ports: [{port: 80}]}",
			want: []string{`spec.clusterIPs: Invalid value: ["None","10.96.0.1"]: 'None' must be the first and only value`},
		},
		{
			name: "families that disagree",
			spec: "{clusterIPs: [10.96.0.1, 'fd00::1'], ipFamilies: [IPv6, IPv4], ports: [{port: 80}]}",
			want: []string{
				"spec.clusterIPs[0]: Invalid value: \"10.96.0.1\": expected an IPv6 value as indicated by `ipFamilies[0]`",
				"spec.clusterIPs[1]: Invalid value: \"fd00::1\": expected an IPv4 value as indicated by `ipFamilies[1]`",
			},
		},
		{
			name: "families",
			spec: "{clusterIP: 10.96.0.1, ipFamilies: [IPv4, IPv4, ipv6], ipFamilyPolicy: DualStack, ports: [{port: 80}]}",
			want: []string{
				`spec.ipFamilies[1]: Duplicate value: "IPv4"`,
				`spec.ipFamilies[2]: Unsupported value: "ipv6": supported values: "IPv4", "IPv6"`,
				`spec.ipFamilyPolicy: Unsupported value: "DualStack": supported values: "PreferDualStack", "RequireDualStack", "SingleStack"`,
			},
		},
		{
			name: "single stack with two clusterIPs",
			spec: "{clusterIPs: [10.96.0.1, 'fd00::1'], ipFamilyPolicy: SingleStack, ports: [{port: 80}]}",
			want: []string{`spec.ipFamilyPolicy: Invalid value: "SingleStack": must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified`},
		},
		{
			name: "single stack with two families",
			spec: "{clusterIP: 10.96.0.1, ipFamilies: [IPv4, IPv6], ipFamilyPolicy: SingleStack, ports: [{port: 80}]}",
			want: []string{`spec.ipFamilyPolicy: Invalid value: "SingleStack": must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified`},
		},
		{
			name: "external IPs",
			spec: "{clusterIP: 10.96.0.1, externalIPs: [0.0.0.0, 127.0.0.1, 169.254.1.1, 224.0.0.1, 'fe80::1', here], ports: [{port: 80}]}",
			want: []string{
				`spec.externalIPs[0]: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0)`,
				`spec.externalIPs[1]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`,
				`spec.externalIPs[2]: Invalid value: "169.254.1.1": may not be in the link-local range (169.254.0.0/16, fe80::/10)`,
				`spec.externalIPs[3]: Invalid value: "224.0.0.1": may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)`,
				`spec.externalIPs[4]: Invalid value: "fe80::1": may not be in the link-local range (169.254.0.0/16, fe80::/10)`,
				`spec.externalIPs[5]: Invalid value: "here": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
			},
		},
		{
			name: "source ranges",
			spec: "{type: LoadBalancer, clusterIP: 10.96.0.1, loadBalancerSourceRanges: [192.0.2.1/24, 192.0.2.1], ports: [{port: 80}]}",
			want: []string{
				`spec.loadBalancerSourceRanges[0]: Invalid value: "192.0.2.1/24": must not have bits set beyond the prefix length`,
				`spec.loadBalancerSourceRanges[1]: Invalid value: "192.0.2.1": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`,
			},
		},
		{
			name: "fields of load balancers",
			spec: "{clusterIP: 10.96.0.1, loadBalancerSourceRanges: [192.0.2.0/24], allocateLoadBalancerNodePorts: true, loadBalancerClass: a/b, ports: [{port: 80}]}",
			want: []string{
				"spec.loadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
				"spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'",
				"spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
			},
		},
		{
			name: "affinity",
			spec: "{clusterIP: 10.96.0.1, sessionAffinity: Client, ports: [{port: 80}]}",
			want: []string{`spec.sessionAffinity: Unsupported value: "Client": supported values: "ClientIP", "None"`},
		},
		{
			name: "affinity too long",
			spec: "{clusterIP: 10.96.0.1, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}, ports: [{port: 80}]}",
			want: []string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than 86400"},
		},
		{
			name: "affinity too short",
			spec: "{clusterIP: 10.96.0.1, sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 0}}, ports: [{port: 80}]}",
			want: []string{"spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 0: must be greater than 0 and less than 86400"},
		},
		{
			name: "policies",
			spec: "{type: NodePort, clusterIP: 10.96.0.1, externalTrafficPolicy: local, internalTrafficPolicy: node, trafficDistribution: Near, healthCheckNodePort: 30001, ports: [{port: 80}]}",
			want: []string{
				`spec.externalTrafficPolicy: Unsupported value: "local": supported values: "Cluster", "Local"`,
				`spec.internalTrafficPolicy: Unsupported value: "node": supported values: "Cluster", "Local"`,
				`spec.trafficDistribution: Unsupported value: "Near": supported values: "PreferClose", "PreferSameZone", "PreferSameNode"`,
				"spec.healthCheckNodePort: Invalid value: 30001: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
			},
		},
		{
			name: "external policy without external addresses",
			spec: "{clusterIP: 10.96.0.1, externalTrafficPolicy: Local, ports: [{port: 80}]}",
			want: []string{`spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services`},
		},
		{
			name: "health check port",
			spec: "{type: LoadBalancer, clusterIP: 10.96.0.1, externalTrafficPolicy: Local, healthCheckNodePort: 70000, ports: [{port: 80}]}",
			want: []string{"spec.healthCheckNodePort: Invalid value: 70000: must be between 1 and 65535, inclusive"},
		},
		{
			name: "selector",
			spec: "{clusterIP: 10.96.0.1, selector: {b: '!', a: '?'}, ports: [{port: 80}]}",
			want: []string{
				`spec.selector: Invalid value: "!": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`,
				`spec.selector: Invalid value: "?": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`,
			},
		},
		{
			name: "load balancer status",
			spec: "{type: LoadBalancer, clusterIP: 10.96.0.1, ports: [{port: 80}]}\n" +
				"status: {loadBalancer: {ingress: [{ip: 192.0.2}, {ip: 192.0.2.1, ipMode: Vip}, {hostname: 192.0.2.1}, {hostname: a_b}, {ipMode: VIP}]}}",
			want: []string{
				`status.loadBalancer.ingress[0].ip: Invalid value: "192.0.2": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
				`status.loadBalancer.ingress[1].ipMode: Unsupported value: "Vip": supported values: "Proxy", "VIP"`,
				`status.loadBalancer.ingress[2].hostname: Invalid value: "192.0.2.1": must be a DNS name, not an IP address`,
				`status.loadBalancer.ingress[3].hostname: Invalid value: "a_b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
				"status.loadBalancer.ingress[4].ipMode: Forbidden: may not be specified when `ip` is not set",
			},
		},
		{
			name: "invalid status of another type is dropped",
			spec: "{clusterIP: 10.96.0.1, ports: [{port: 80}]}\nstatus: {loadBalancer: {ingress: [{ip: 192.0.2}]}}",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := parseAll("apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: " + test.spec + "\n")
			expectProblems(t, got, "web.yaml: document 1: Service default/web: ", test.want)
		})
	}
}

func expectProblems(t *testing.T, got parsed, prefix string, want []string) {
	t.Helper()
	var texts []string
	for _, p := range got.problems {
		texts = append(texts, p.Error())
	}
	expectLines(t, texts, prefixed(prefix, want))
}

func TestValidateMeta(t *testing.T) {
	const label = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
	tests := []struct {
		name     string
		metadata string
		want     []string
	}{
		{name: "digits first", metadata: "{name: 1web}"},
		{
			name:     "service name with a dot",
			metadata: "{name: web.shop}",
			want:     []string{`E web.yaml: document 1: Service default/web.shop: metadata.name: Invalid value: "web.shop": must not contain dots`},
		},
		{name: "no name", metadata: "{namespace: shop}", want: []string{"E web.yaml: document 1: Service shop/: metadata.name: Required value"}},
		{name: "made up name", metadata: "{generateName: web-}", want: []string{"E web.yaml: document 1: Service default/: metadata.name: Required value"}},
		{
			name:     "namespace",
			metadata: "{name: web, namespace: The_Shop}",
			want:     []string{`E web.yaml: document 1: Service The_Shop/web: metadata.namespace: Invalid value: "The_Shop": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`},
		},
		{
			name:     "labels in one order",
			metadata: "{name: web, labels: {c: '#', a: '?', b: '!'}}",
			want: []string{
				`E web.yaml: document 1: Service default/web: metadata.labels: Invalid value: "!": ` + label,
				`E web.yaml: document 1: Service default/web: metadata.labels: Invalid value: "#": ` + label,
				`E web.yaml: document 1: Service default/web: metadata.labels: Invalid value: "?": ` + label,
			},
		},
		{
			name:     "annotations that contradict each other",
			metadata: "{name: web, annotations: {service.kubernetes.io/topology-mode: Auto, service.kubernetes.io/topology-aware-hints: Disabled}}",
			want:     []string{`E web.yaml: document 1: Service default/web: metadata.annotations[service.kubernetes.io/topology-mode]: Invalid value: "Auto": must match annotations[service.kubernetes.io/topology-aware-hints] when both are specified`},
		},
		{
			name:     "source ranges in an annotation",
			metadata: "{name: web, annotations: {service.beta.kubernetes.io/load-balancer-source-ranges: '192.0.2.0/24, 192.0.2'}}",
			want: []string{
				"E web.yaml: document 1: Service default/web: metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]: Forbidden: may only be used when `type` is 'LoadBalancer'",
				`E web.yaml: document 1: Service default/web: metadata.annotations[service.beta.kubernetes.io/load-balancer-source-ranges]: Invalid value: "192.0.2": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`,
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := parseAll("apiVersion: v1\nkind: Service\nmetadata: " + test.metadata + "\nspec: {clusterIP: None}\n")
			if len(test.want) == 0 && len(got.objects) == 1 {
				return
			}
			expectLines(t, got.describe(), test.want)
		})
	}
}
