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

// changes tells in one line which fields of the configuration file differ. Both contents load.
func changes(before, after []byte) string {
	var from, to map[string]any
	if err := errors.Join(yaml.Unmarshal(before, &from), yaml.Unmarshal(after, &to)); err != nil {
		return "the fields cannot be compared: " + oneLine(err)
	}
	differ := differences("", from, to)
	if len(differ) == 0 {
		return "no field has another value"
	}
	return strings.Join(differ, ", ")
}

// differences names each field and its values, sorted by field.
func differences(path string, from, to map[string]any) []string {
	names := maps.Clone(from)
	if names == nil {
		names = make(map[string]any)
	}
	maps.Copy(names, to)
	var out []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		a, b := from[name], to[name]
		field := strings.TrimPrefix(path+"."+name, ".")
		aMap, aIs := a.(map[string]any)
		bMap, bIs := b.(map[string]any)
		if (aIs || a == nil) && (bIs || b == nil) {
			out = append(out, differences(field, aMap, bMap)...)
			continue
		}
		if x, y := inJSON(a), inJSON(b); x != y {
			out = append(out, fmt.Sprintf("%s %s -> %s", field, x, y))
		}
	}
	return out
}

// inJSON shows a value that was decoded from YAML.
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
