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

// document is a YAML document or JSON value of a file.
type document struct {
	number  int // 1-based
	line    int // 0-based line of the file on which data begins
	data    []byte
	isJSON  bool
	jsonErr error // of data that looks like JSON and is parsed as YAML
	err     error // the rest of the file cannot be split; data is nil
}

// splitDocuments splits a file into documents as kubectl does. A file that
// begins with a brace is a sequence of JSON values. If one is invalid, the
// rest of the file is YAML, unless at least two values precede it. All other
// files are YAML.
//
// Each `---` line begins a document, even an empty one. Text before the first
// `---` line is a document unless it has only comments.
func splitDocuments(data []byte) []document {
	if !utilyaml.IsJSONBuffer(data) {
		return splitYAML(data, 0, 0)
	}
	docs, rest, jsonErr := splitJSON(data)
	if jsonErr == nil {
		return docs
	}
	if len(docs) > 1 {
		return append(docs, document{number: len(docs) + 1, err: jsonErr})
	}
	line := lineAt(data, len(data)-len(rest))
	// YAML does not allow tabs at the start of a line.
	rest = bytes.TrimLeftFunc(rest, func(r rune) bool { return r != '\n' && unicode.IsSpace(r) })
	yamlDocs := splitYAML(rest, len(docs), line)
	if len(yamlDocs) > 0 && utilyaml.IsJSONBuffer(rest) {
		yamlDocs[0].jsonErr = jsonErr
	}
	return append(docs, yamlDocs...)
}

// splitJSON splits data into JSON values. If one is invalid, it returns the
// rest of data and the error.
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
		if len(docs) == maxDocuments {
			return docs, nil, errDocuments
		}
		end := int(decoder.InputOffset())
		line += bytes.Count(data[offset:end-len(value)], []byte("\n"))
		docs = append(docs, document{number: len(docs) + 1, line: line, data: value, isJSON: true})
		line += bytes.Count(value, []byte("\n"))
		offset = end
	}
}

// splitYAML splits YAML text at its `---` and `...` lines. number and line
// are the numbers of documents and lines that precede data in the file.
func splitYAML(data []byte, number, line int) []document {
	var docs []document
	begin := document{line: line}
	start, separated := 0, false // separated: the document follows a `---` line
	finish := func(end int) {
		if separated || hasContent(data[start:end]) {
			number++
			docs = append(docs, document{number: number, line: begin.line, data: data[start:end]})
		}
	}
	pos := 0
	for text := range bytes.Lines(data) {
		marker, err := markerOf(text)
		if err != nil {
			finish(pos)
			return append(docs, document{number: number + 1, err: fmt.Errorf("line %d: %w", line+1, err)})
		}
		if len(docs) == maxDocuments {
			return append(docs, document{number: number + 1, err: errDocuments})
		}
		if marker != "" {
			finish(pos)
			start, separated = pos+len(text), marker == documentStart
			begin.line = line + 1
		}
		pos += len(text)
		line++
	}
	finish(len(data))
	return docs
}

// The lines that separate YAML documents.
const (
	documentStart = "---"
	documentEnd   = "..."
)

// markerOf returns the marker of a line that separates documents, or "". Like
// kubectl, it refuses content after the marker, except for a comment.
func markerOf(line []byte) (string, error) {
	marker := string(line[:min(len(documentStart), len(line))])
	if marker != documentStart && marker != documentEnd {
		return "", nil
	}
	if rest := bytes.TrimSpace(line[len(marker):]); len(rest) > 0 && rest[0] != '#' {
		return "", fmt.Errorf("invalid document separator: %s", bytes.TrimSpace(line))
	}
	return marker, nil
}

// hasContent reports whether YAML text has more than comments and blank
// lines.
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

// isBreak reports whether a character ends a line in YAML 1.1.
func isBreak(r rune) bool {
	return r == '\n' || r == '\r' || r == '\u0085' || r == '\u2028' || r == '\u2029'
}

// lineAt returns the 0-based line that contains offset.
func lineAt(data []byte, offset int) int {
	return bytes.Count(data[:min(offset, len(data))], []byte("\n"))
}

// locate adds the line to a JSON syntax error.
func locate(err error, data []byte) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("line %d: %w", lineAt(data, int(syntax.Offset)-1)+1, err)
	}
	return err
}
