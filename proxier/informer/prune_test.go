package informer

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/test/must"
)

// readObject reads an object in YAML, without its kind.
func readObject[T any](t *testing.T, file string) (object T) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalStrict(text, &object)
	}
	must.NoError(t, err)
	return object
}

// setNumber makes the metadata of objects with different numbers differ.
func setNumber(m *metav1.ObjectMeta, i int) {
	m.Name, m.UID, m.ResourceVersion = fmt.Sprint("web-", i), types.UID(fmt.Sprint(i)), fmt.Sprint(i)
	m.Labels = map[string]string{discoveryv1.LabelServiceName: fmt.Sprint("web-", i)}
	m.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(strings.Repeat("x", 60*i))
}

// fullSlice returns an EndpointSlice in which all fields are set.
func fullSlice(t *testing.T, i int) discoveryv1.EndpointSlice {
	slice := readObject[discoveryv1.EndpointSlice](t, "testdata/endpointslice.yaml")
	slice.TypeMeta = metav1.TypeMeta{}
	setNumber(&slice.ObjectMeta, i)
	slice.Ports[0].Port = ptr.To(int32(80 + i))
	endpoint := slice.Endpoints[0]
	slice.Endpoints = nil
	for e := range i % 20 {
		endpoint := *endpoint.DeepCopy()
		endpoint.Addresses = []string{fmt.Sprintf("10.244.%d.%d", i, e)}
		endpoint.Conditions.Ready = ptr.To(e%2 == 0)
		endpoint.NodeName = ptr.To(fmt.Sprint("node-", e))
		slice.Endpoints = append(slice.Endpoints, endpoint)
	}
	return slice
}

// fullService returns a Service in which all fields that a proxier could read
// are set.
func fullService(t *testing.T, i int) corev1.Service {
	service := readObject[corev1.Service](t, "testdata/service.yaml")
	service.TypeMeta = metav1.TypeMeta{}
	setNumber(&service.ObjectMeta, i)
	service.Spec.ClusterIP = fmt.Sprintf("10.96.0.%d", i)
	service.Spec.ClusterIPs = []string{service.Spec.ClusterIP, fmt.Sprintf("fd00::%d", i)}
	service.Spec.Ports[0].Port = int32(80 + i)
	service.Spec.SessionAffinityConfig.ClientIP.TimeoutSeconds = ptr.To(int32(60 + i))
	return service
}

// Fields that are not decoded do not matter to the translation, and an object
// has nothing of the one before it in the list.
func TestPrune(t *testing.T) {
	slices, serviceList := &discoveryv1.EndpointSliceList{}, &corev1.ServiceList{}
	for i := range 40 {
		empty := metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("empty-", i)}
		slices.Items = append(slices.Items, fullSlice(t, i), discoveryv1.EndpointSlice{
			ObjectMeta: empty, AddressType: discoveryv1.AddressTypeIPv4,
		})
		serviceList.Items = append(serviceList.Items, fullService(t, i), corev1.Service{ObjectMeta: empty})
	}
	checkPruned(t, endpointSlices, slices)
	checkPruned(t, services, serviceList)
	numbered := func(i int) metav1.ObjectMeta {
		return fullService(t, i).ObjectMeta
	}
	nodeList, cidrList := &corev1.NodeList{}, &networkingv1.ServiceCIDRList{}
	for i := range 3 {
		nodeList.Items = append(nodeList.Items, corev1.Node{
			ObjectMeta: numbered(i), Spec: corev1.NodeSpec{PodCIDRs: []string{fmt.Sprintf("10.244.%d.0/24", i)}},
		})
		cidrList.Items = append(cidrList.Items, networkingv1.ServiceCIDR{
			ObjectMeta: numbered(i),
			Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{fmt.Sprintf("10.%d.0.0/16", i)}},
		})
	}
	checkPruned(t, nodes, nodeList)
	checkPruned(t, serviceCIDRs, cidrList)
}

func checkPruned[N comparable, V any, O object](t *testing.T, k kind[N, V, O], objects runtime.Object) {
	t.Helper()
	text := encoded(runtime.ContentTypeProtobuf, objects)
	whole, err := runtime.Decode(decoder, text)
	must.NoError(t, err)
	want, err := k.translateList(whole)
	must.NoError(t, err)
	got, err := k.readList(decoder, bytes.NewReader(text))
	must.NoError(t, err)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s objects: got %+v\nwant %+v", k.name, got, want)
	}
}

// The fields that are not read are removed, and no others.
func TestPruneFields(t *testing.T) {
	slice := fullSlice(t, 5)
	message, err := slice.Marshal()
	must.NoError(t, err)
	var got discoveryv1.EndpointSlice
	must.NoError(t, got.Unmarshal(unreadEndpointSlice.prune(message)))
	slice.GenerateName, slice.OwnerReferences, slice.Finalizers, slice.ManagedFields = "", nil, nil, nil
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		e.Hostname, e.DeprecatedTopology, e.Zone = nil, nil, nil
		*e.TargetRef = corev1.ObjectReference{Kind: e.TargetRef.Kind, Name: e.TargetRef.Name}
	}
	if got.String() != slice.String() {
		t.Errorf("got %+v\nwant %+v", &got, &slice)
	}
}
