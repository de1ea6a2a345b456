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

const wantedType = "want apiVersion: kubeproxy.config.k8s.io/v1alpha1 and kind: KubeProxyConfiguration"

// decode decodes a KubeProxyConfiguration in YAML or JSON and sets no
// defaults. As in kube-proxy, unknown and duplicate fields of v1alpha1 are not
// errors; decode returns a warning for each.
func decode(data []byte) (c *v1alpha1.KubeProxyConfiguration, warnings []string, err error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, nil, err
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	object, _, err := decoder.Decode(data, nil, nil)
	if strict, ok := runtime.AsStrictDecodingError(err); ok && object != nil {
		for _, e := range strict.Errors() {
			if e.Error() == fmt.Sprintf("unknown field %q", ownSection) { // see setOwnFields
				continue
			}
			warnings = append(warnings, explainStrict(oneLine(e)))
		}
		err = nil
	}
	switch {
	case runtime.IsMissingKind(err):
		return nil, nil, errors.New("kind is missing: " + wantedType)
	case runtime.IsMissingVersion(err):
		return nil, nil, errors.New("apiVersion is missing: " + wantedType)
	case runtime.IsNotRegisteredError(err):
		return nil, nil, fmt.Errorf("%s is not supported: %s", typeOf(data), wantedType)
	case err != nil:
		return nil, nil, fmt.Errorf("cannot be decoded: %s", oneLine(err))
	}
	return object.(*v1alpha1.KubeProxyConfiguration), warnings, nil // the only type of the scheme
}

// explainStrict turns an error of the strict decoder into a warning.
func explainStrict(text string) string {
	if key, ok := strings.CutPrefix(text, "yaml: unmarshal errors: "); ok {
		return key + ": the last value is used; remove the others"
	}
	if strings.HasPrefix(text, "duplicate field") {
		return text + ": the last value is used; remove the others"
	}
	return text + " is ignored: correct or remove it"
}

// typeOf returns the apiVersion and kind of a document.
func typeOf(data []byte) string {
	var t metav1.TypeMeta
	if err := yaml.Unmarshal(data, &t); err != nil {
		return "an unknown type"
	}
	return fmt.Sprintf("apiVersion %q, kind %q", t.APIVersion, t.Kind)
}

// oneLine returns the text of err in one line.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
