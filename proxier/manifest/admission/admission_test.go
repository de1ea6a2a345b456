package admission

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// testCase is a document of testdata/KIND.yaml or testdata/KIND_TOPIC.yaml.
type testCase struct {
	Name string `json:"name"`
	// Object is the object without its kind and, if its name does not matter,
	// without its metadata.
	Object   map[string]any `json:"object"`
	Errors   []string       `json:"errors"`   // "…" at the end matches any text
	Warnings []string       `json:"warnings"` // compared only if Want is not set
	// Want is the object with its defaults, without its metadata. It is
	// compared only if it is set. The values are those of a Kubernetes 1.36
	// API server, apart from the differences that doc.go lists.
	Want map[string]any `json:"want"`
}

func TestAdmission(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("got files %q, error %v, want test data", files, err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		kind, _, _ := strings.Cut(name, "_")
		for _, test := range readCases(t, file) {
			t.Run(name+"/"+test.Name, func(t *testing.T) { test.run(t, kind) })
		}
	}
}

func readCases(t *testing.T, file string) []testCase {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var cases []testCase
	decoder := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := decoder.Read()
		if errors.Is(err, io.EOF) {
			return cases
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var test testCase
		if err := yaml.UnmarshalStrict(document, &test); err != nil {
			t.Fatalf("%s: %v\n%s", file, err, document)
		}
		cases = append(cases, test)
	}
}

func (test testCase) run(t *testing.T, kind string) {
	if _, found := test.Object["metadata"]; !found {
		test.Object["metadata"] = map[string]any{"name": "web"}
	}
	object, warnings, errs := admit(t, kind, test.Object)
	expectErrors(t, errs, test.Errors)
	if test.Want == nil {
		if !slices.Equal(warnings, test.Warnings) {
			t.Errorf("got warnings %q, want %q", warnings, test.Warnings)
		}
		return
	}
	if got, want := canonical(t, object), canonical(t, test.Want); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// admit decodes an object and calls the function of its kind.
func admit(t *testing.T, kind string, fields map[string]any) (any, []string, field.ErrorList) {
	t.Helper()
	switch kind {
	case "service":
		service := decode[corev1.Service](t, fields)
		warnings, errs := Service(service)
		return service, warnings, errs
	case "endpointslice":
		slice := decode[discoveryv1.EndpointSlice](t, fields)
		return slice, nil, EndpointSlice(slice)
	case "node":
		node := decode[corev1.Node](t, fields)
		return node, nil, Node(node)
	case "servicecidr":
		serviceCIDR := decode[networkingv1.ServiceCIDR](t, fields)
		return serviceCIDR, nil, ServiceCIDR(serviceCIDR)
	}
	t.Fatalf("test data of unknown kind %s", kind)
	return nil, nil, nil
}

func decode[T any](t *testing.T, fields map[string]any) *T {
	t.Helper()
	object := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(fields, object, true); err != nil {
		t.Fatal(err)
	}
	return object
}

func expectErrors(t *testing.T, errs field.ErrorList, want []string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	matches := func(got, want string) bool {
		prefix, cut := strings.CutSuffix(want, "…")
		return got == want || cut && strings.HasPrefix(got, prefix)
	}
	if !slices.EqualFunc(got, want, matches) {
		t.Errorf("got errors\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// canonical returns an object as YAML, without its metadata and without the
// fields of a Node's status that the encoder writes although they are not
// set.
func canonical(t *testing.T, object any) string {
	t.Helper()
	text, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := yaml.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	delete(fields, "metadata")
	if status, ok := fields["status"].(map[string]any); ok {
		delete(status, "daemonEndpoints")
		delete(status, "nodeInfo")
	}
	if text, err = yaml.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDefaultNamespace(t *testing.T) {
	for kind, want := range map[string]map[string]string{
		"service":       {"": "default", "shop": "shop"},
		"endpointslice": {"": "default", "shop": "shop"},
		"node":          {"": "", "shop": ""},
		"servicecidr":   {"": "", "shop": ""},
	} {
		for namespace, want := range want {
			object, _, _ := admit(t, kind, map[string]any{
				"metadata": map[string]any{"name": "web", "namespace": namespace},
			})
			got := object.(interface{ GetNamespace() string }).GetNamespace()
			if got != want {
				t.Errorf("%s in namespace %q: got namespace %q, want %q", kind, namespace, got, want)
			}
		}
	}
}

func TestEndpointSliceLimits(t *testing.T) {
	repeat := func(n int, element func(i int) any) []any {
		var elements []any
		for i := range n {
			elements = append(elements, element(i))
		}
		return elements
	}
	endpoint := func(int) any { return map[string]any{"addresses": []any{"10.0.0.1"}} }
	hint := func(i int) any { return map[string]any{"name": fmt.Sprintf("a%d", i)} }
	hints := map[string]any{"forZones": repeat(9, hint), "forNodes": repeat(9, hint)}
	for _, test := range []struct {
		name      string
		endpoints []any
		want      []string
	}{
		{
			name:      "endpoints",
			endpoints: repeat(1001, endpoint),
			want:      []string{"endpoints: Too many: 1001: must have at most 1000 items"},
		},
		{
			name: "addresses",
			endpoints: []any{map[string]any{
				"addresses": repeat(101, func(i int) any { return fmt.Sprintf("10.0.0.%d", i) }),
			}},
			want: []string{"endpoints[0].addresses: Too many: 101: must have at most 100 items"},
		},
		{
			name:      "hints",
			endpoints: []any{map[string]any{"addresses": []any{"10.0.0.1"}, "hints": hints}},
			want: []string{
				"endpoints[0].hints.forZones: Too many: 9: must have at most 8 items",
				"endpoints[0].hints.forNodes: Too many: 9: must have at most 8 items",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, _, errs := admit(t, "endpointslice", map[string]any{
				"metadata": map[string]any{"name": "web-1"}, "addressType": "IPv4", "endpoints": test.endpoints,
			})
			expectErrors(t, errs, test.want)
		})
	}
}
