package config

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"
)

const kind = "KubeProxyConfiguration"

const wantedType = "a file begins with apiVersion: kubeproxy.config.k8s.io/v1alpha1 and kind: KubeProxyConfiguration"

// decode reads a KubeProxyConfiguration in YAML or JSON, without defaults. Unknown fields and fields that are there twice are
// ignored, as kube-proxy ignores them in v1alpha1, and named in unknown.
func decode(data []byte) (c *v1alpha1.KubeProxyConfiguration, unknown []string, err error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, nil, err
	}
	object, _, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer().Decode(data, nil, nil)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		for _, e := range strict.Errors() {
			unknown = append(unknown, explainStrict(oneLine(e)))
		}
		object, _, err = serializer.NewCodecFactory(scheme, serializer.DisableStrict).UniversalDeserializer().Decode(data, nil, nil)
	}
	switch {
	case runtime.IsMissingKind(err):
		return nil, nil, errors.New("kind is missing: " + wantedType)
	case runtime.IsMissingVersion(err):
		return nil, nil, errors.New("apiVersion is missing: " + wantedType)
	case runtime.IsNotRegisteredError(err):
		return nil, nil, fmt.Errorf("holds %s: %s", typeOf(data), wantedType)
	case err != nil:
		return nil, nil, fmt.Errorf("cannot be decoded: %s", oneLine(err))
	}
	c, ok := object.(*v1alpha1.KubeProxyConfiguration)
	if !ok {
		return nil, nil, fmt.Errorf("holds a %T: %s", object, wantedType)
	}
	return c, unknown, nil
}

// explainStrict says what a strict decoder's complaint means for a lenient one.
func explainStrict(complaint string) string {
	if key, ok := strings.CutPrefix(complaint, "yaml: unmarshal errors: "); ok {
		return key + ": the last one counts, remove the others"
	}
	if strings.HasPrefix(complaint, "duplicate field") {
		return complaint + ": the last one counts, remove the others"
	}
	return complaint + " is ignored: correct or remove it"
}

// typeOf names the type that a document says to be of.
func typeOf(data []byte) string {
	var t metav1.TypeMeta
	if err := yaml.Unmarshal(data, &t); err != nil {
		return "an unknown type"
	}
	return fmt.Sprintf("apiVersion %q, kind %q", t.APIVersion, t.Kind)
}

// oneLine is the text of an error that may have several lines.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
