package config

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/test/must"
)

// TestFieldsOfKubeProxy compares the fields of the library with the recorded
// ones, so that an update of the library shows new fields.
func TestFieldsOfKubeProxy(t *testing.T) {
	data, err := os.ReadFile("testdata/kube-proxy-fields.tsv")
	must.NoError(t, err)
	var want []string
	for line := range strings.Lines(string(data)) {
		if words := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); words[0][0] != '#' && words[2] != "-" {
			want = append(want, words[0]+"\t"+words[2])
		}
	}
	got := fieldsOf("", reflect.TypeFor[v1alpha1.KubeProxyConfiguration]())
	checkSame(t, got, want)
}

// TestOwnFieldsOfChart compares the fields that kube-proxy does not have with
// those that the schema of the chart accepts.
func TestOwnFieldsOfChart(t *testing.T) {
	data, err := os.ReadFile("../../../deploy/helm/nftproxy/values.schema.json")
	must.NoError(t, err)
	var schema struct {
		Defs map[string]struct {
			Properties map[string]any `json:"properties"`
		} `json:"$defs"`
	}
	must.NoError(t, json.Unmarshal(data, &schema))
	var got, want []string
	for name := range schema.Defs["main.ownSection"].Properties {
		got = append(got, name)
	}
	for _, f := range parse(t).cmd.flags {
		if name, ok := strings.CutPrefix(f.field, ownSection+"."); ok {
			want = append(want, name)
		}
	}
	checkSame(t, got, want)
}

// checkSame compares lines in any order.
func checkSame(t *testing.T, got, want []string) {
	t.Helper()
	for _, line := range sets.New(want...).SymmetricDifference(sets.New(got...)).UnsortedList() {
		t.Errorf("%s: expected %v", line, slices.Contains(want, line))
	}
}

// fieldsOf returns the fields of a struct with their types, fields of nested
// structs with a dot.
func fieldsOf(path string, typ reflect.Type) (out []string) {
	for f := range typ.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		field := strings.TrimPrefix(path+"."+name, ".")
		switch inner := elem(f.Type); {
		case name == "":
			out = append(out, fieldsOf(path, inner)...)
		case inner.Kind() == reflect.Struct && !reflect.PointerTo(inner).Implements(reflect.TypeFor[json.Marshaler]()):
			out = append(out, fieldsOf(field, inner)...)
		default:
			out = append(out, fmt.Sprintf("%s\t%s", field, f.Type))
		}
	}
	return out
}

func elem(typ reflect.Type) reflect.Type {
	if typ.Kind() == reflect.Pointer {
		return typ.Elem()
	}
	return typ
}

// TestDefaultsOfKubeProxy compares the defaults in nftables mode with the
// recorded ones. Only nftables.minSyncPeriod differs.
func TestDefaultsOfKubeProxy(t *testing.T) {
	data, err := os.ReadFile("testdata/kube-proxy-fields.tsv")
	must.NoError(t, err)
	encoded, err := yaml.Marshal(parse(t).Configuration)
	must.NoError(t, err)
	var ours map[string]any
	must.NoError(t, yaml.Unmarshal(encoded, &ours))
	for line := range strings.Lines(string(data)) {
		words := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if words[0][0] == '#' {
			continue
		}
		got := inJSON(valueAt(ours, words[0]))
		if words[0] == "nftables.minSyncPeriod" && got == `"1ms"` {
			continue
		}
		for i, version := range []string{"v1.36.3", "v1.37.2"} {
			if want := words[3+i]; got != want {
				t.Errorf("%s: got %s, want %s as in %s", words[0], got, want, version)
			}
		}
	}
}

// valueAt returns the value at a path with dots, nil if there is none.
func valueAt(object map[string]any, path string) any {
	name, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		return object[name]
	}
	inner, _ := object[name].(map[string]any)
	return valueAt(inner, rest)
}
