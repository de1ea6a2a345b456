package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// changes lists, in one line, the fields that differ between two contents of
// the configuration file.
func changes(before, after []byte) string {
	differ, err := differences(before, after)
	switch {
	case err != nil:
		return "the fields cannot be compared: " + oneLine(err)
	case len(differ) == 0:
		return "no field has another value"
	}
	return strings.Join(differ, ", ")
}

// differences returns the fields that differ between two YAML documents,
// sorted, with both values in JSON: `mode "nftables" -> "ipvs"`.
func differences(before, after []byte) ([]string, error) {
	var from, to map[string]any
	if err := errors.Join(yaml.Unmarshal(before, &from), yaml.Unmarshal(after, &to)); err != nil {
		return nil, err
	}
	return fieldDifferences("", from, to), nil
}

func fieldDifferences(path string, from, to map[string]any) []string {
	names := make(map[string]any)
	maps.Copy(names, from)
	maps.Copy(names, to)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a, b := from[name], to[name]
		field := strings.TrimPrefix(path+"."+name, ".")
		aMap, aIs := a.(map[string]any)
		bMap, bIs := b.(map[string]any)
		if (aIs || a == nil) && (bIs || b == nil) {
			out = append(out, fieldDifferences(field, aMap, bMap)...)
			continue
		}
		if x, y := inJSON(a), inJSON(b); x != y {
			out = append(out, fmt.Sprintf("%s %s -> %s", field, x, y))
		}
	}
	return out
}

// inJSON returns a value decoded from YAML as JSON, "none" for nil.
func inJSON(v any) string {
	if v == nil {
		return "none"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}
