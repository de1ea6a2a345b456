package config

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/kube-proxy/config/v1alpha1"
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
			unknown = append(unknown, oneLine(e))
		}
		object, _, err = serializer.NewCodecFactory(scheme, serializer.DisableStrict).UniversalDeserializer().Decode(data, nil, nil)
	}
	switch {
	case runtime.IsMissingKind(err):
		return nil, nil, errors.New("kind is missing: " + wantedType)
	case runtime.IsMissingVersion(err):
		return nil, nil, errors.New("apiVersion is missing: " + wantedType)
	case runtime.IsNotRegisteredError(err):
		return nil, nil, fmt.Errorf("not a KubeProxyConfiguration (%s): %s", oneLine(err), wantedType)
	case err != nil:
		return nil, nil, fmt.Errorf("cannot be decoded: %s", oneLine(err))
	}
	c, ok := object.(*v1alpha1.KubeProxyConfiguration)
	if !ok {
		return nil, nil, fmt.Errorf("holds a %T: %s", object, wantedType)
	}
	return c, unknown, nil
}

// oneLine is the text of an error that may have several lines.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
