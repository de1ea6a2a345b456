package manifest

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// The results are those of a Kubernetes 1.36 API server, but for what it allocates and for the fields that
// the package documentation names.
func TestDefaults(t *testing.T) {
	tests := []struct {
		name string
		data string
		want string
	}{
		{
			name: "service",
			data: "kind: Service\nspec: {clusterIP: 10.96.0.1, ports: [{name: http, port: 80}, {name: dns, port: 53, protocol: UDP, targetPort: dns}]}",
			want: `
spec:
  clusterIP: 10.96.0.1
  clusterIPs: [10.96.0.1]
  internalTrafficPolicy: Cluster
  ipFamilies: [IPv4]
  ipFamilyPolicy: SingleStack
  ports:
  - {name: http, port: 80, protocol: TCP, targetPort: 80}
  - {name: dns, port: 53, protocol: UDP, targetPort: dns}
  sessionAffinity: None
  type: ClusterIP
status: {loadBalancer: {}}`,
		},
		{
			name: "IPv6 and external IPs",
			data: "kind: Service\nspec: {clusterIPs: ['fd00::1'], externalIPs: [192.0.2.1], ports: [{port: 80, targetPort: 0}]}",
			want: `
spec:
  clusterIP: fd00::1
  clusterIPs: [fd00::1]
  externalIPs: [192.0.2.1]
  externalTrafficPolicy: Cluster
  internalTrafficPolicy: Cluster
  ipFamilies: [IPv6]
  ipFamilyPolicy: SingleStack
  ports:
  - {port: 80, protocol: TCP, targetPort: 80}
  sessionAffinity: None
  type: ClusterIP
status: {loadBalancer: {}}`,
		},
		{
			name: "dual stack node port with affinity",
			data: "kind: Service\nspec: {type: NodePort, clusterIPs: ['fd00::1', 10.96.0.1], sessionAffinity: ClientIP, ports: [{port: 80, nodePort: 30080, targetPort: ''}]}",
			want: `
spec:
  clusterIP: fd00::1
  clusterIPs: [fd00::1, 10.96.0.1]
  externalTrafficPolicy: Cluster
  internalTrafficPolicy: Cluster
  ipFamilies: [IPv6, IPv4]
  ipFamilyPolicy: RequireDualStack
  ports:
  - {port: 80, protocol: TCP, targetPort: 80, nodePort: 30080}
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 10800}}
  type: NodePort
status: {loadBalancer: {}}`,
		},
		{
			name: "load balancer",
			data: "kind: Service\nspec: {type: LoadBalancer, sessionAffinityConfig: {clientIP: {timeoutSeconds: 5}}, ports: [{port: 80}]}\n" +
				"status: {loadBalancer: {ingress: [{ip: 192.0.2.1}, {ip: 192.0.2.2, ipMode: Proxy}, {hostname: lb.example.com}]}}",
			want: `
spec:
  allocateLoadBalancerNodePorts: true
  externalTrafficPolicy: Cluster
  internalTrafficPolicy: Cluster
  ipFamilyPolicy: SingleStack
  ports:
  - {port: 80, protocol: TCP, targetPort: 80}
  sessionAffinity: None
  type: LoadBalancer
status: {loadBalancer: {ingress: [{ip: 192.0.2.1, ipMode: VIP}, {ip: 192.0.2.2, ipMode: Proxy}, {hostname: lb.example.com}]}}`,
		},
		{
			name: "given values stay",
			data: "kind: Service\nspec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, clusterIP: 10.96.0.1, " +
				"externalTrafficPolicy: Local, internalTrafficPolicy: Local, ipFamilyPolicy: PreferDualStack, ipFamilies: [IPv4, IPv6], " +
				"sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}, ports: [{port: 80}]}",
			want: `
spec:
  allocateLoadBalancerNodePorts: false
  clusterIP: 10.96.0.1
  clusterIPs: [10.96.0.1]
  externalTrafficPolicy: Local
  internalTrafficPolicy: Local
  ipFamilies: [IPv4, IPv6]
  ipFamilyPolicy: PreferDualStack
  ports:
  - {port: 80, protocol: TCP, targetPort: 80}
  sessionAffinity: ClientIP
  sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}
  type: LoadBalancer
status: {loadBalancer: {}}`,
		},
		{
			name: "headless",
			data: "kind: Service\nspec: {clusterIP: None, selector: {app: web}}",
			want: `
spec:
  clusterIP: None
  clusterIPs: [None]
  internalTrafficPolicy: Cluster
  ipFamilyPolicy: SingleStack
  selector: {app: web}
  sessionAffinity: None
  type: ClusterIP
status: {loadBalancer: {}}`,
		},
		{
			name: "headless without selector",
			data: "kind: Service\nspec: {clusterIPs: [None]}",
			want: `
spec:
  clusterIP: None
  clusterIPs: [None]
  internalTrafficPolicy: Cluster
  ipFamilyPolicy: RequireDualStack
  sessionAffinity: None
  type: ClusterIP
status: {loadBalancer: {}}`,
		},
		{
			name: "external name",
			data: "kind: Service\nspec: {type: ExternalName, externalName: example.com.}",
			want: `
spec:
  externalName: example.com.
  sessionAffinity: None
  type: ExternalName
status: {loadBalancer: {}}`,
		},
		{
			name: "status of another type",
			data: "kind: Service\nspec: {type: NodePort, clusterIP: 10.96.0.1, ports: [{port: 80}]}\nstatus: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}}",
			want: `
spec:
  clusterIP: 10.96.0.1
  clusterIPs: [10.96.0.1]
  externalTrafficPolicy: Cluster
  internalTrafficPolicy: Cluster
  ipFamilies: [IPv4]
  ipFamilyPolicy: SingleStack
  ports:
  - {port: 80, protocol: TCP, targetPort: 80}
  sessionAffinity: None
  type: NodePort
status: {loadBalancer: {}}`,
		},
		{
			name: "endpoint slice",
			data: "kind: EndpointSlice\naddressType: IPv4\nports: [{port: 80}, {name: dns, protocol: UDP}]\n" +
				"endpoints: [{addresses: [10.244.1.7], deprecatedTopology: {kubernetes.io/hostname: worker}, conditions: {serving: true}}]",
			want: `
addressType: IPv4
ports: [{name: '', port: 80, protocol: TCP}, {name: dns, protocol: UDP}]
endpoints: [{addresses: [10.244.1.7], conditions: {serving: true}}]`,
		},
		{
			name: "node with a pod CIDR",
			data: "kind: Node\nspec: {podCIDR: 10.244.1.0/24}\nstatus: {capacity: {cpu: 2}}",
			want: `
spec: {podCIDR: 10.244.1.0/24, podCIDRs: [10.244.1.0/24]}
status: {capacity: {cpu: 2}, allocatable: {cpu: 2}}`,
		},
		{
			name: "node with pod CIDRs",
			data: "kind: Node\nspec: {podCIDRs: [10.244.1.0/24, 'fd00:1::/64']}",
			want: "spec: {podCIDR: 10.244.1.0/24, podCIDRs: [10.244.1.0/24, 'fd00:1::/64']}\nstatus: {}",
		},
		{
			name: "node whose pod CIDRs disagree",
			data: "kind: Node\nspec: {podCIDR: 10.244.2.0/24, podCIDRs: [10.244.1.0/24, 'fd00:1::/64']}",
			want: "spec: {podCIDR: 10.244.2.0/24, podCIDRs: [10.244.2.0/24]}\nstatus: {}",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			header, want := "apiVersion: v1\nmetadata: {name: web}\n", "apiVersion: v1\nmetadata: {name: web}\n"
			switch {
			case strings.Contains(test.data, "EndpointSlice"):
				header = "apiVersion: discovery.k8s.io/v1\nmetadata: {name: web, labels: {kubernetes.io/service-name: web}}\n"
				want = "apiVersion: discovery.k8s.io/v1\nmetadata: {name: web, namespace: default, labels: {kubernetes.io/service-name: web}}\n"
			case strings.Contains(test.data, "Service"):
				want = "apiVersion: v1\nmetadata: {name: web, namespace: default}\n"
			}
			want += strings.SplitAfter(test.data, "\n")[0] + test.want
			result := parseAll(header + test.data)
			if len(result.objects) != 1 {
				t.Fatalf("not accepted: %q", result.describe())
			}
			if got, want := asYAML(t, result.objects[0].value), reformatted(t, want); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// asYAML gives an object in one canonical form, without what is null.
func asYAML(t *testing.T, value any) string {
	t.Helper()
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return reformatted(t, string(text))
}

func reformatted(t *testing.T, text string) string {
	t.Helper()
	var value map[string]any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	withoutServerFields(value)
	result, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(result)
}

// withoutServerFields drops fields that the encoder writes though they are not set.
func withoutServerFields(value map[string]any) {
	if metadata, ok := value["metadata"].(map[string]any); ok && metadata["creationTimestamp"] == nil {
		delete(metadata, "creationTimestamp")
	}
	if status, ok := value["status"].(map[string]any); ok && value["kind"] == "Node" {
		for _, name := range []string{"daemonEndpoints", "nodeInfo"} {
			delete(status, name)
		}
	}
	if resources, ok := value["status"].(map[string]any); ok {
		for _, name := range []string{"capacity", "allocatable"} {
			if list, ok := resources[name].(map[string]any); ok {
				list["cpu"] = "2"
			}
		}
	}
}
