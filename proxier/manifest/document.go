package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode"

	goyaml "go.yaml.in/yaml/v3"
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

// Limits of what is read. Up to them, a file costs less than 1 GB of memory.
const (
	maxFileSize  = 16 << 20 // bytes
	maxTotalSize = 8 * maxFileSize
	maxDocuments = 50_000    // of a file
	maxValues    = 1_000_000 // of a document: scalars, lists and mappings
	maxProblems  = 100       // of a file; its other documents and items are not parsed
)

var (
	errFileSize  = fmt.Errorf("larger than %d MB, the limit of a manifest", maxFileSize>>20)
	errTotalSize = fmt.Errorf("with the manifests before it larger than %d MB, the limit of a directory",
		maxTotalSize>>20)
	errDocuments = fmt.Errorf("more than %d documents, the limit of a manifest", maxDocuments)
	errValues    = fmt.Errorf("more than %d values, the limit of a document", maxValues)
	errAliases   = fmt.Errorf("its aliases stand for more than %d values or %d MB, the limits of a document",
		maxValues, maxFileSize>>20)
	errProblems = fmt.Errorf("at least %d problems, the rest is not parsed", maxProblems)
)

// checkSize returns an error if the document would be too large when it is
// decoded.
func (d document) checkSize() error {
	// Each value follows one of these characters, or precedes a colon.
	values := 0
	for _, indicator := range []string{",", ":", "[", "{", "-", "?"} {
		values += bytes.Count(d.data, []byte(indicator))
	}
	if values > maxValues {
		return errValues
	}
	if d.isJSON || !bytes.ContainsRune(d.data, '*') {
		return nil // no alias
	}
	var root goyaml.Node
	if err := goyaml.Unmarshal(d.data, &root); err != nil {
		return d.inFileLines(err)
	}
	if s := (expansion{}).of(&root); s.values > maxValues || s.bytes > maxFileSize {
		return errAliases
	}
	return nil
}

// size is the size of a YAML value without aliases.
type size struct{ values, bytes int }

// expansion is the sizes of the values that have an anchor.
type expansion map[*goyaml.Node]size

// of returns the size of a value whose aliases are replaced. It is not more
// than a little above the limits.
func (e expansion) of(n *goyaml.Node) size {
	if n.Alias != nil {
		n = n.Alias
	}
	if s, known := e[n]; known {
		return s
	}
	if n.Anchor != "" {
		e[n] = size{} // for an alias within its value, which is an error later
	}
	s := size{values: 1, bytes: len(n.Value)}
	for _, c := range n.Content {
		inner := e.of(c)
		s.values = min(s.values+inner.values, maxValues+1)
		s.bytes = min(s.bytes+inner.bytes, maxFileSize+1)
	}
	if n.Anchor != "" {
		e[n] = s
	}
	return s
}
