package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// ownSection is the object of the configuration file with the settings that
// kube-proxy does not have. kube-proxy ignores it with a warning.
const ownSection = "nftproxy"

// own returns the effect of a flag that kube-proxy does not have.
func own(field string) effect { return effect{field: ownSection + "." + field, overrides: true} }

// setOwnFields sets the flags whose fields ownSection has, unless they are on
// the command line. It returns a warning for each unknown field.
func (c *commandLine) setOwnFields(file []byte) (warnings []string, err error) {
	var content map[string]any
	if err := yaml.Unmarshal(file, &content); err != nil {
		return nil, fmt.Errorf("%s: %s", c.options.ConfigFile, oneLine(err))
	}
	fields, ok := content[ownSection].(map[string]any)
	if !ok && content[ownSection] != nil {
		return nil, fmt.Errorf("%s: %s is not an object", c.origin(ownSection), inJSON(content[ownSection]))
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		field := ownSection + "." + name
		i := slices.IndexFunc(c.flags, func(f flagSpec) bool { return f.field == field })
		if i < 0 {
			warnings = append(warnings, explainStrict(fmt.Sprintf("unknown field %q", field)))
			continue
		}
		flag := c.all.Lookup(c.flags[i].name)
		if fields[name] == nil || flag.Changed {
			continue
		}
		text, err := ownValue(fields[name], flag.Value.Type())
		if err == nil {
			err = flag.Value.Set(text)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.origin(field), err))
		}
	}
	return warnings, errors.Join(errs...)
}

// ownValue returns the value of a flag of a type as the command line has it.
// YAML reads the words on and off as booleans.
func ownValue(value any, typ string) (string, error) {
	switch v := value.(type) {
	case string:
		if _, err := strconv.ParseBool(v); typ == "bool" && err != nil {
			return "", fmt.Errorf("%q is not true or false", v)
		}
		return v, nil
	case bool:
		if typ != "bool" {
			return map[bool]string{true: "on", false: "off"}[v], nil
		}
		return strconv.FormatBool(v), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	}
	return "", fmt.Errorf("%s is not a string, number or boolean", inJSON(value))
}

// ownFields returns ownSection with the values that are not the default.
func (c *commandLine) ownFields() map[string]any {
	out := make(map[string]any)
	for _, f := range c.flags {
		name, ok := strings.CutPrefix(f.field, ownSection+".")
		if !ok {
			continue
		}
		if flag := c.all.Lookup(f.name); flag.Value.String() != flag.DefValue {
			out[name] = flag.Value.String()
		}
	}
	return out
}
