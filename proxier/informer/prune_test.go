package informer

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/proxier/translate"
)

// fullMeta returns metadata with all fields.
func fullMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: "web", Namespace: "default", UID: "u", ResourceVersion: "7", Generation: 3, GenerateName: "web-",
		CreationTimestamp: metav1.Unix(1000, 0), DeletionTimestamp: &metav1.Time{Time: time.Unix(2000, 0)},
		Finalizers: []string{"f"},
		Labels: map[string]string{
			"app": "web", translate.LabelServiceProxyName: "other", corev1.IsHeadlessService: "",
			discoveryv1.LabelServiceName: "web", corev1.LabelTopologyZone: "z",
		},
		Annotations: map[string]string{
			"note": "long", translate.AnnotationBalance: "source-hash", translate.AnnotationHashTableSize: "503",
			translate.AnnotationWeight: "50", corev1.EndpointsLastChangeTriggerTime: "2026-01-02T03:04:05Z",
		},
		OwnerReferences: []metav1.OwnerReference{{Name: "o"}},
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
	}
}

// numberedMeta returns metadata with all fields.
func numberedMeta(i int) metav1.ObjectMeta {
	m := fullMeta()
	m.Name, m.UID, m.ResourceVersion = fmt.Sprint("web-", i), types.UID(fmt.Sprint(i)), fmt.Sprint(i)
	m.Labels = map[string]string{discoveryv1.LabelServiceName: fmt.Sprint("web-", i)}
	m.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(strings.Repeat("x", 60*i))
	return m
}

// fullSlice returns an EndpointSlice in which all fields are set.
func fullSlice(i int) discoveryv1.EndpointSlice {
	slice := discoveryv1.EndpointSlice{
		ObjectMeta: numberedMeta(i), AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{
			Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(int32(80 + i)),
			AppProtocol: ptr.To("h2c"),
		}},
	}
	for e := range i % 20 {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.244.%d.%d", i, e)},
			Conditions: discoveryv1.EndpointConditions{
				Ready: ptr.To(e%2 == 0), Serving: ptr.To(true), Terminating: ptr.To(true),
			},
			Hostname:           ptr.To("host"),
			TargetRef:          &corev1.ObjectReference{Kind: "Pod", Name: "pod"},
			DeprecatedTopology: map[string]string{"a": "b"},
			NodeName:           ptr.To(fmt.Sprint("node-", e)),
			Zone:               ptr.To("zone"),
			Hints: &discoveryv1.EndpointHints{
				ForZones: []discoveryv1.ForZone{{Name: "a"}}, ForNodes: []discoveryv1.ForNode{{Name: "node-1"}},
			},
		})
	}
	return slice
}

// fullService returns a Service in which all fields that a proxier could read
// are set.
func fullService(i int) corev1.Service {
	ip := fmt.Sprintf("10.96.0.%d", i)
	return corev1.Service{
		ObjectMeta: numberedMeta(i),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": "web"},
			ClusterIP: ip, ClusterIPs: []string{ip, fmt.Sprintf("fd00::%d", i)}, ExternalIPs: []string{"192.0.2.1"},
			IPFamilies:     []corev1.IPFamily{corev1.IPv4Protocol},
			IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
			Ports: []corev1.ServicePort{
				{Name: "http", Port: int32(80 + i), NodePort: 30080, TargetPort: intstr.FromInt32(80),
					AppProtocol: ptr.To("h")},
			},
			LoadBalancerIP: "192.0.2.2", LoadBalancerSourceRanges: []string{"192.0.2.0/24"},
			LoadBalancerClass: ptr.To("c"),
			SessionAffinity:   corev1.ServiceAffinityClientIP,
			SessionAffinityConfig: &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(int32(60 + i))},
			},
			InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyLocal),
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, HealthCheckNodePort: 30000,
			PublishNotReadyAddresses: true, TrafficDistribution: ptr.To("PreferClose"),
		},
		Status: corev1.ServiceStatus{
			LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.3"}}},
			Conditions:   []metav1.Condition{{Type: "t"}},
		},
	}
}

// Fields that are not decoded do not matter to the translation, and an object
// has nothing of the one before it in the list.
func TestPrune(t *testing.T) {
	slices, serviceList := &discoveryv1.EndpointSliceList{}, &corev1.ServiceList{}
	for i := range 40 {
		empty := metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("empty-", i)}
		slices.Items = append(slices.Items, fullSlice(i), discoveryv1.EndpointSlice{
			ObjectMeta: empty, AddressType: discoveryv1.AddressTypeIPv4,
		})
		serviceList.Items = append(serviceList.Items, fullService(i), corev1.Service{ObjectMeta: empty})
	}
	checkPruned(t, endpointSlices, slices)
	checkPruned(t, services, serviceList)
	nodeList, cidrList := &corev1.NodeList{}, &networkingv1.ServiceCIDRList{}
	for i := range 3 {
		nodeList.Items = append(nodeList.Items, corev1.Node{
			ObjectMeta: numberedMeta(i), Spec: corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.244.%d.0/24", i)}},
		})
		cidrList.Items = append(cidrList.Items, networkingv1.ServiceCIDR{
			ObjectMeta: numberedMeta(i),
			Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{fmt.Sprintf("10.%d.0.0/16", i)}},
		})
	}
	checkPruned(t, nodes, nodeList)
	checkPruned(t, serviceCIDRs, cidrList)
}

func checkPruned[N comparable, V any, O object](t *testing.T, k kind[N, V, O], objects runtime.Object) {
	t.Helper()
	text := encoded(t, runtime.ContentTypeProtobuf, objects)
	whole, err := runtime.Decode(decoder, text)
	if err != nil {
		t.Fatal(err)
	}
	want, err := k.translateList(whole)
	if err != nil {
		t.Fatal(err)
	}
	got, err := k.readList(decoder, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s objects: got %+v\nwant %+v", k.name, got, want)
	}
}

// The fields that are not read are removed, and no others.
func TestPruneFields(t *testing.T) {
	slice := fullSlice(5)
	message, err := slice.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var got discoveryv1.EndpointSlice
	if err := got.Unmarshal(unreadEndpointSlice.prune(message)); err != nil {
		t.Fatal(err)
	}
	slice.GenerateName, slice.OwnerReferences, slice.Finalizers, slice.ManagedFields = "", nil, nil, nil
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		e.Hostname, e.TargetRef, e.DeprecatedTopology, e.Zone = nil, nil, nil, nil
	}
	if got.String() != slice.String() {
		t.Errorf("got %+v\nwant %+v", &got, &slice)
	}
}
