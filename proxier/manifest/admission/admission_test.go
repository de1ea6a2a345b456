package admission

import (
	"bufio"
	"bytes"
	"errors"
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

	"github.com/nftproxy/nftproxy/test/must"
)

// testCase is a document of testdata/KIND.yaml or testdata/KIND_TOPIC.yaml.
type testCase struct {
	Name string `json:"name"`
	// Object is the object without its kind and, if its name does not matter,
	// without its metadata.
	Object   map[string]any `json:"object"`
	Errors   []string       `json:"errors"`   // "…" at the end matches any text
	Warnings []string       `json:"warnings"` // compared only if Want is not set
	// Want is the object afterwards, without its metadata. It is compared only
	// if it is set.
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
	must.NoError(t, err)
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
	must.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(fields, object, true))
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

// canonical returns an object as YAML, without its metadata.
func canonical(t *testing.T, object any) string {
	t.Helper()
	text, err := yaml.Marshal(object)
	must.NoError(t, err)
	var fields map[string]any
	must.NoError(t, yaml.Unmarshal(text, &fields))
	delete(fields, "metadata")
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
