package manifest

import (
	"bytes"
	"fmt"

	goyaml "go.yaml.in/yaml/v3"
)

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
