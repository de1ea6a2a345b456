package translate

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/proxier/cluster"
	"github.com/nftproxy/nftproxy/test/script"
)

// TestScripts runs the scripts about objects of the API. These are their steps:
//
//	parse FILE [KEY=VALUE]       prints what the proxier gets of an object, without
//	                             empty fields, and the problems; with an annotation
//	field NAME FILE [KEY=VALUE]  prints one field of it, and the problems
func TestScripts(t *testing.T) {
	script.Run(t, script.Suite{Setup: func(*script.Env) (map[string]script.Command, error) {
		return map[string]script.Command{
			"parse": func(s *script.Script, args []string) (string, error) { return parse(s, "", args) },
			"field": func(s *script.Script, args []string) (string, error) { return parse(s, args[0], args[1:]) },
		}, nil
	}})
}

func parse(s *script.Script, field string, args []string) (string, error) {
	text := []byte(s.ReadFile(args[0]))
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(text, &kind); err != nil {
		return "", err
	}
	service, slice, node := new(corev1.Service), new(discoveryv1.EndpointSlice), new(corev1.Node)
	object := map[string]metav1.Object{"Service": service, "EndpointSlice": slice, "Node": node}[kind.Kind]
	if err := yaml.UnmarshalStrict(text, object); err != nil {
		return "", err
	}
	if len(args) > 1 {
		key, value, _ := strings.Cut(args[1], "=")
		object.SetAnnotations(map[string]string{key: value})
	}
	switch kind.Kind {
	case "Service":
		parsed := ParseService(service)
		return fields(parsed.Service, field) + lines("problem", parsed.Problems), nil
	case "EndpointSlice":
		parsed := ParseEndpointSlice(slice)
		text := fmt.Sprintf("Service %s\n", parsed.Service)
		if field != "" {
			text = ""
		}
		for _, e := range parsed.Endpoints {
			text += fields(e, field)
		}
		return text + lines("problem", parsed.Problems), nil
	}
	return fmt.Sprintf("IPs %v\npod CIDRs %v\neligible %v\n", NodeIPs(node), PodCIDRs(node), NodeEligible(node)), nil
}

// fields returns the fields of a struct that are not zero, or one field.
func fields[T any](object *T, only string) string {
	if object == nil {
		return "none\n"
	}
	var text strings.Builder
	for field, value := range reflect.ValueOf(object).Elem().Fields() {
		switch {
		case field.Name == only:
			if weight, ok := value.Interface().(cluster.Weight); ok {
				return fmt.Sprintln(weight.Int())
			}
			return fmt.Sprintf("%v\n", value)
		case only == "" && !value.IsZero() && field.IsExported():
			if value.Kind() == reflect.Pointer {
				value = value.Elem()
			}
			fmt.Fprintf(&text, "%s %+v\n", field.Name, value)
		}
	}
	return text.String()
}

func lines[T any](prefix string, values []T) (text string) {
	for _, v := range values {
		text += fmt.Sprintf("%s: %v\n", prefix, v)
	}
	return text
}

func TestNoNode(t *testing.T) {
	if NodeEligible(nil) {
		t.Error("got an eligible node without an object")
	}
}
