// Command schema prints the JSON schema of the values of the chart. `make
// chart` writes it to values.schema.json.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/invopop/jsonschema"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
)

func main() {
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", " ")
	out.SetEscapeHTML(false)
	if err := out.Encode(newSchema()); err != nil {
		fmt.Fprintln(os.Stderr, "schema:", err)
		os.Exit(1)
	}
}

// newSchema returns the schema of type values. A field that no type has is
// invalid, so that Helm names a mistyped field. No field is required: the
// templates report what is missing.
func newSchema() *jsonschema.Schema {
	reflector := jsonschema.Reflector{
		Anonymous:                  true,
		ExpandedStruct:             true,
		RequiredFromJSONSchemaTags: true,
		Mapper:                     textual,
		Namer:                      qualifiedName,
	}
	schema := reflector.Reflect(&values{})
	schema.Properties.Value("preset").Enum = []any{"generic", "kubeadm", "kind", "k3s", "rke2", "talos", "eks"}
	for _, field := range []struct {
		of     any
		name   string
		values []any
	}{
		{v1alpha1.KubeProxyConfiguration{}, "mode", []any{"", "nftables"}},
		{v1alpha1.KubeProxyConfiguration{}, "detectLocalMode",
			[]any{"", "ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix"}},
		{appsv1.DaemonSetUpdateStrategy{}, "type", []any{"RollingUpdate", "OnDelete"}},
	} {
		definition := schema.Definitions[qualifiedName(reflect.TypeOf(field.of))]
		definition.Properties.Value(field.name).Enum = field.values
	}
	return schema
}

// textual returns the schema of types whose encoding differs from their Go
// type.
func textual(t reflect.Type) *jsonschema.Schema {
	switch reflect.New(t).Interface().(type) {
	case *metav1.Duration:
		return &jsonschema.Schema{Type: "string"}
	case *flag:
		return &jsonschema.Schema{Type: "string", Pattern: "^-"}
	case *name:
		maxLength := uint64(50)
		return &jsonschema.Schema{Type: "string", Pattern: "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", MaxLength: &maxLength}
	case *resource.Quantity, *resource.QuantityValue, *intstr.IntOrString, *logsapi.TimeOrMetaDuration:
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "string"}, {Type: "number"}}}
	}
	return nil
}

// qualifiedName returns the name of a type with its package, because types of
// several packages have the same name.
func qualifiedName(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Name() == "" {
		return ""
	}
	return strings.ReplaceAll(t.PkgPath(), "/", ".") + "." + t.Name()
}
