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

// toJSON returns the document as JSON. An empty document is null.
func (d document) toJSON() ([]byte, error) {
	if d.err != nil {
		return nil, d.err
	}
	if err := d.checkSize(); err != nil {
		return nil, err
	}
	if d.isJSON {
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

// duplicatesKeys reports whether YAML that strict decoding refuses has
// duplicate keys. Keys that override keys of a merge (`<<: *base`) are not
// duplicates.
func duplicatesKeys(data []byte) bool {
	// A MapSlice has the keys as written, without keys of merges.
	var written goyaml.MapSlice
	return goyaml.Unmarshal(data, &written) != nil || hasDuplicateKey(written)
}

// hasDuplicateKey reports whether any mapping within a YAML value has a key
// twice.
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

// yamlLine matches the line numbers in a YAML syntax error.
var yamlLine = regexp.MustCompile(`(?m)^(yaml: |  )line (\d+):`)

// inFileLines replaces the line numbers in a YAML syntax error: they count
// from the start of the file instead of the document. It joins the error to
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
