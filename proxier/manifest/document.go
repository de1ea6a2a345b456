package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// document is one YAML document or JSON value of a file.
type document struct {
	number  int // 1-based
	line    int // 0-based line of the file at which data begins
	data    []byte
	isJSON  bool
	jsonErr error // why data, which looks like JSON, is tried as YAML
	broken  error // why there are no data: neither this document nor the rest of the file can be told apart
}

// splitDocuments cuts a file into its documents as kubectl does: a file that begins with a brace is a row of
// JSON values, with or without anything between them; where it stops being one the rest is YAML, unless two
// values came before. Everything else is YAML.
//
// Documents are numbered as people count the `---` lines: each begins one, and what stands before the first
// is one if it is more than comments.
func splitDocuments(data []byte) []document {
	if !utilyaml.IsJSONBuffer(data) {
		return splitYAML(data, 0, 0)
	}
	docs, rest, jsonErr := splitJSON(data)
	if jsonErr == nil {
		return docs
	}
	if len(docs) > 1 {
		return append(docs, document{number: len(docs) + 1, broken: jsonErr})
	}
	line := lineAt(data, len(data)-len(rest))
	// YAML is particular about tabs and the like, JSON was not.
	rest = bytes.TrimLeftFunc(rest, func(r rune) bool { return r != '\n' && unicode.IsSpace(r) })
	yamlDocs := splitYAML(rest, len(docs), line)
	if len(yamlDocs) > 0 && utilyaml.IsJSONBuffer(rest) {
		yamlDocs[0].jsonErr = jsonErr
	}
	return append(docs, yamlDocs...)
}

// splitJSON takes JSON values off data until there is none or something else follows, which it returns
// together with the reason.
func splitJSON(data []byte) (docs []document, rest []byte, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	line := 0 // at offset
	for offset := 0; ; {
		var value json.RawMessage
		err := decoder.Decode(&value)
		if errors.Is(err, io.EOF) {
			return docs, nil, nil
		}
		if err != nil {
			return docs, data[offset:], locate(err, data)
		}
		end := int(decoder.InputOffset())
		line += bytes.Count(data[offset:end-len(value)], []byte("\n"))
		docs = append(docs, document{number: len(docs) + 1, line: line, data: value, isJSON: true})
		line += bytes.Count(value, []byte("\n"))
		offset = end
	}
}

// splitYAML cuts YAML text at its `---` and `...` lines. number and line tell how many documents and lines
// of the file came before.
func splitYAML(data []byte, number, line int) []document {
	var docs []document
	begin := document{line: line}
	start, announced := 0, false
	finish := func(end int) {
		if announced || hasContent(data[start:end]) {
			number++
			docs = append(docs, document{number: number, line: begin.line, data: data[start:end]})
		}
	}
	for pos := 0; pos < len(data); line++ {
		end := lineEnd(data, pos)
		marker, err := markerOf(data[pos:end])
		if err != nil {
			finish(pos)
			return append(docs, document{number: number + 1, broken: fmt.Errorf("line %d: %w", line+1, err)})
		}
		if marker != "" {
			finish(pos)
			start, announced = end, marker == documentStart
			begin.line = line + 1
		}
		pos = end
	}
	finish(len(data))
	return docs
}

// The lines that separate YAML documents.
const (
	documentStart = "---"
	documentEnd   = "..."
)

// markerOf tells whether a line separates documents. Only a comment may follow on the line: kubectl refuses
// content behind `---`.
func markerOf(line []byte) (string, error) {
	for _, marker := range []string{documentStart, documentEnd} {
		rest, found := bytes.CutPrefix(line, []byte(marker))
		if !found {
			continue
		}
		rest = bytes.TrimSpace(rest)
		if len(rest) > 0 && rest[0] != '#' {
			return "", fmt.Errorf("invalid document separator: %s", bytes.TrimSpace(line))
		}
		return marker, nil
	}
	return "", nil
}

// hasContent tells whether YAML text is more than comments and blank lines.
func hasContent(text []byte) bool {
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // a byte order mark
	for line := range bytes.FieldsFuncSeq(text, isBreak) {
		line = bytes.Trim(line, " \t")
		if len(line) > 0 && line[0] != '#' {
			return true
		}
	}
	return false
}

// isBreak tells whether a character ends a line, and a comment with it, in YAML 1.1.
func isBreak(r rune) bool {
	return r == '\n' || r == '\r' || r == '\u0085' || r == '\u2028' || r == '\u2029'
}

// lineEnd returns the offset behind the line that holds pos.
func lineEnd(data []byte, pos int) int {
	if i := bytes.IndexByte(data[pos:], '\n'); i >= 0 {
		return pos + i + 1
	}
	return len(data)
}

// lineAt returns the 0-based line that holds offset.
func lineAt(data []byte, offset int) int {
	return bytes.Count(data[:min(offset, len(data))], []byte("\n"))
}

// locate adds the line to an error of the JSON syntax.
func locate(err error, data []byte) error {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("line %d: %w", lineAt(data, int(syntax.Offset)-1)+1, err)
	}
	return err
}
