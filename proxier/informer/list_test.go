package informer

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
)

// decoder decodes all objects of the API.
var decoder = scheme.Codecs.UniversalDeserializer()

// encoded returns an object as an API server sends it.
func encoded(mediaType string, o runtime.Object) []byte {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), mediaType)
	versions := schema.GroupVersions{
		discoveryv1.SchemeGroupVersion, corev1.SchemeGroupVersion, networkingv1.SchemeGroupVersion,
	}
	codec := scheme.Codecs.EncoderForVersion(info.Serializer, versions)
	return []byte(runtime.EncodeOrDie(codec, o.DeepCopyObject())) // encoding writes the kind to it
}

func sliceList(n int) *discoveryv1.EndpointSliceList {
	list := &discoveryv1.EndpointSliceList{ListMeta: metav1.ListMeta{
		ResourceVersion: "4711", Continue: "more",
		RemainingItemCount: ptr.To[int64](7), // in protobuf a field without a size
	}}
	for i := range n {
		list.Items = append(list.Items, discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: fmt.Sprintf("web-%d", i), ResourceVersion: fmt.Sprint(i),
				Labels:      map[string]string{discoveryv1.LabelServiceName: "web"},
				Annotations: map[string]string{"long": strings.Repeat("x", 100*i)},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{fmt.Sprintf("10.244.0.%d", i)}}},
			Ports:       []discoveryv1.EndpointPort{{Port: ptr.To[int32](80)}},
		})
	}
	return list
}

// Streaming has the same result as decoding the whole response, in each
// encoding and for each size of reads.
func TestReadList(t *testing.T) {
	for _, n := range []int{0, 1, 50} {
		whole := sliceList(n)
		want, err := endpointSlices.translateList(whole)
		if err != nil {
			t.Fatal(err)
		}
		for _, mediaType := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
			text := encoded(mediaType, whole)
			for name, r := range map[string]io.Reader{
				"at once":      bytes.NewReader(text),
				"byte by byte": iotest.OneByteReader(bytes.NewReader(text)),
			} {
				got, err := endpointSlices.readList(decoder, r)
				if err != nil {
					t.Fatalf("%s, %d objects %s: %v", mediaType, n, name, err)
				}
				list := got.(*internalversion.List)
				list.RemainingItemCount = nil // client-go does not read it
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s, %d objects %s: got %+v\nwant %+v", mediaType, n, name, got, want)
				}
			}
		}
	}
}

// A truncated response is an error. A corrupt one causes no panic and no
// endless loop.
func TestReadCorruptList(t *testing.T) {
	for _, mediaType := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		text := bytes.TrimSpace(encoded(mediaType, sliceList(3)))
		complete := len(text)
		if mediaType == runtime.ContentTypeProtobuf {
			complete -= len("\x1a\x00\x22\x00") // empty contentEncoding and contentType
		}
		for n := range complete {
			if list, err := endpointSlices.readList(decoder, bytes.NewReader(text[:n])); err == nil {
				t.Fatalf("%s: got list %+v of %d of %d bytes, want an error", mediaType, list, n, len(text))
			}
		}
		for n := range text {
			changed := bytes.Clone(text)
			changed[n] ^= 0xff
			_, _ = endpointSlices.readList(decoder, bytes.NewReader(changed))
		}
	}
}

func TestReadListOfWrongKind(t *testing.T) {
	pods := &corev1.PodList{Items: []corev1.Pod{{}}}
	for _, mediaType := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		_, err := services.readList(decoder, bytes.NewReader(encoded(mediaType, pods)))
		message := fmt.Sprint(err)
		if !strings.Contains(message, "list of Service objects: ") || !strings.Contains(message, "Pod") {
			t.Errorf("%s: got error %v, want one that names Service and Pod", mediaType, err)
		}
	}
}
