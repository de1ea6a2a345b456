package manifest

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	goyaml "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"
)

// toJSON returns the document as JSON: the value null for an empty one.
func (d document) toJSON() ([]byte, error) {
	switch {
	case d.broken != nil:
		return nil, d.broken
	case d.isJSON:
		return d.data, nil
	}
	value, err := yaml.YAMLToJSONStrict(d.data)
	if err == nil {
		return value, nil
	}
	value, syntaxErr := yaml.YAMLToJSON(d.data)
	switch {
	case syntaxErr == nil && !duplicatesKeys(d.data):
		return value, nil
	case syntaxErr != nil && d.jsonErr != nil:
		return nil, d.jsonErr
	}
	return nil, d.inFileLines(err)
}

// duplicatesKeys tells whether YAML that strict decoding refuses is wrong to have duplicate keys. If they all
// come from a merge (`<<: *base`), which a key beside it may override, kubectl takes it.
func duplicatesKeys(data []byte) bool {
	// A MapSlice holds the keys as written, without those that merges bring in.
	var written goyaml.MapSlice
	return goyaml.Unmarshal(data, &written) != nil || hasDuplicateKey(written)
}

// hasDuplicateKey tells whether a key stands twice in any mapping within a YAML value.
func hasDuplicateKey(value any) bool {
	switch value := value.(type) {
	case goyaml.MapSlice:
		seen := make(map[string]struct{}, len(value))
		for _, item := range value {
			key := fmt.Sprint(item.Key)
			if _, found := seen[key]; found || hasDuplicateKey(item.Value) {
				return true
			}
			seen[key] = struct{}{}
		}
	case []any:
		for _, element := range value {
			if hasDuplicateKey(element) {
				return true
			}
		}
	}
	return false
}

// yamlLine matches where an error of the YAML syntax names a line.
var yamlLine = regexp.MustCompile(`(?m)^(yaml: |  )line (\d+):`)

// inFileLines gives an error of the YAML syntax the lines of the file instead of the document's, and puts it on
// one line.
func (d document) inFileLines(err error) error {
	text := yamlLine.ReplaceAllStringFunc(err.Error(), func(match string) string {
		parts := yamlLine.FindStringSubmatch(match)
		line, err := strconv.Atoi(parts[2])
		if err != nil {
			return match
		}
		return fmt.Sprintf("%sline %d:", parts[1], d.line+line)
	})
	text = strings.Replace(text, "unmarshal errors:\n  ", "", 1)
	return errors.New(strings.ReplaceAll(text, "\n  ", "; "))
}
