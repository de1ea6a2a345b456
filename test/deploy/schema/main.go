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
	corev1 "k8s.io/api/core/v1"
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
		{configuration{}, "mode", []any{"", "nftables"}},
		{configuration{}, "detectLocalMode",
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

// values are the values of the chart. values.yaml documents them.
type values struct {
	Global            map[string]any                 `json:"global"` // Helm adds it to the values of each chart
	Preset            string                         `json:"preset"`
	APIServer         string                         `json:"apiServer" jsonschema:"pattern=^(https?://[^/]+)?$"`
	Config            configuration                  `json:"config"`
	Image             image                          `json:"image"`
	ImagePullSecrets  []corev1.LocalObjectReference  `json:"imagePullSecrets"`
	FullnameOverride  name                           `json:"fullnameOverride"`
	ServiceAccount    serviceAccount                 `json:"serviceAccount"`
	Conntrack         conntrack                      `json:"conntrack"`
	ResetStale        bool                           `json:"resetStaleConnections"`
	RetryAfterSeconds int                            `json:"retryAfterSeconds" jsonschema:"minimum=0,maximum=60"`
	HashTableSize     int                            `json:"hashTableSize" jsonschema:"minimum=16,maximum=65536"`
	Eject             bool                           `json:"eject"`
	ExtraArgs         []flag                         `json:"extraArgs"`
	ExtraEnv          []corev1.EnvVar                `json:"extraEnv"`
	Resources         corev1.ResourceRequirements    `json:"resources"`
	UpdateStrategy    appsv1.DaemonSetUpdateStrategy `json:"updateStrategy"`
	PriorityClassName string                         `json:"priorityClassName"`
	HostAliases       []corev1.HostAlias             `json:"hostAliases"`
	NodeSelector      map[string]string              `json:"nodeSelector"`
	Tolerations       []corev1.Toleration            `json:"tolerations"`
	Affinity          corev1.Affinity                `json:"affinity"`
	PodLabels         map[string]string              `json:"podLabels"`
	PodAnnotations    map[string]string              `json:"podAnnotations"`
	Metrics           metrics                        `json:"metrics"`
}

// configuration is the configuration file with the section that kube-proxy does
// not have.
type configuration struct {
	v1alpha1.KubeProxyConfiguration `json:",inline"`
	Own                             ownSection `json:"nftproxy"`
}

// ownSection has the fields of flags that kube-proxy does not have.
type ownSection struct {
	Manifests             string `json:"manifests"`
	ServiceMetrics        string `json:"serviceMetrics" jsonschema:"enum=off,enum=annotated,enum=all"`
	LocalStatusPages      bool   `json:"localStatusPages"`
	MaxServiceRows        int    `json:"maxServiceRows" jsonschema:"minimum=0"`
	MaxNamespaceRows      int    `json:"maxNamespaceRows" jsonschema:"minimum=0"`
	ResetStaleConnections bool   `json:"resetStaleConnections"`
	Eject                 bool   `json:"eject"`
	RetryAfter            string `json:"retryAfter" jsonschema:"pattern=^([0-9]+s|1m)$"`
	HashTableSize         int    `json:"hashTableSize" jsonschema:"minimum=16,maximum=65536"`
}

// flag is an element of extraArgs, which must begin with a dash.
type flag string

// name is the name of all objects, to which the templates append up to 11
// characters.
type name string

type image struct {
	Repository string `json:"repository" jsonschema:"minLength=1"`
	Tag        string `json:"tag"`
	Digest     string `json:"digest" jsonschema:"pattern=^(sha256:[0-9a-f]{64})?$"`
	PullPolicy string `json:"pullPolicy" jsonschema:"enum=Always,enum=IfNotPresent,enum=Never"`
}

type serviceAccount struct {
	Create      bool              `json:"create"`
	Name        string            `json:"name"`
	Annotations map[string]string `json:"annotations"`
}

type conntrack struct {
	InitContainer struct {
		Enabled bool `json:"enabled"`
	} `json:"initContainer"`
}

type metrics struct {
	Expose         bool           `json:"expose"`
	Annotations    bool           `json:"annotations"`
	PodMonitor     monitor        `json:"podMonitor"`
	ServiceMonitor monitor        `json:"serviceMonitor"`
	PrometheusRule prometheusRule `json:"prometheusRule"`
	Dashboard      dashboard      `json:"dashboard"`
}

type monitor struct {
	Enabled  bool              `json:"enabled"`
	Interval string            `json:"interval"`
	Labels   map[string]string `json:"labels"`
}

type prometheusRule struct {
	Enabled bool              `json:"enabled"`
	Labels  map[string]string `json:"labels"`
}

type dashboard struct {
	Enabled     bool              `json:"enabled"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}
