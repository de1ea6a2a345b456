package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	goyaml "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Errors of decoders that name a field or a line.
var (
	lineInError  = regexp.MustCompile(`\bline (\d+): `)
	fieldInError = regexp.MustCompile(`^(?:unknown|duplicate) field "(.+)"$`)
	typeInError  = regexp.MustCompile(
		`^json: cannot unmarshal (\w+)(?: (\S+))? into Go struct field \w+\.(\S+) of type (\S+)$`)
	fieldElements = regexp.MustCompile(`[^.\[\]]+|\[[^\]]*\]`)
)

// setLines sets the lines of the problems of a document. Lines are lines of the
// file.
func (d document) setLines(problems []problem) {
	var root goyaml.Node
	// Objects have a subject, or are items: then the document is not too large.
	if slices.ContainsFunc(problems, func(p problem) bool { return p.subject != "" || p.place.item != noItem }) {
		_ = goyaml.Unmarshal(d.data, &root) // without a root, fields have no lines
	}
	for i := range problems {
		d.setLine(&problems[i], &root)
	}
}

func (d document) setLine(p *problem, root *goyaml.Node) {
	p.place.line = d.firstLine()
	if match := lineInError.FindStringSubmatch(p.err.Error()); match != nil && p.subject == "" {
		p.place.line, _ = strconv.Atoi(match[1])
		p.err = errors.New(strings.Replace(p.err.Error(), match[0], "", 1))
		return
	}
	if len(root.Content) == 0 {
		return
	}
	f := finder{node: root.Content[0]}
	if p.place.item != noItem {
		f.enter("items")
		f.enter(fmt.Sprintf("[%d]", p.place.item))
	}
	f.path = ""
	p.err = f.find(p.err)
	p.place.line = d.line + f.line()
}

// firstLine returns the line on which the text of the document begins.
func (d document) firstLine() int {
	line := d.line
	for text := range bytes.Lines(d.data) {
		line++
		if hasContent(text) {
			return line
		}
	}
	return d.line + 1
}

// finder finds a field in a YAML value.
type finder struct {
	node *goyaml.Node // the value of the field
	at   *goyaml.Node // the key or the element, nil for the whole value
	path string
}

func (f *finder) line() int {
	if f.at != nil {
		return f.at.Line
	}
	return f.node.Line
}

// find goes to the field that an error names, or to the next field above it. It
// returns the error, with the path of a field of a wrong type.
func (f *finder) find(err error) error {
	if invalid, ok := errors.AsType[*field.Error](err); ok {
		f.follow(invalid.Field)
	} else if match := fieldInError.FindStringSubmatch(err.Error()); match != nil {
		f.follow(match[1])
	} else if match := typeInError.FindStringSubmatch(err.Error()); match != nil {
		path := f.followType(match[3], match[1], match[2])
		return fmt.Errorf("%s: must be %s, not %s", path, match[4], strings.TrimSpace(match[1]+" "+match[2]))
	} else if name, _, ok := strings.Cut(err.Error(), ": "); ok {
		f.follow(name) // kind or apiVersion
	}
	return err
}

// follow goes along a path as far as it exists. clusterIPs can be the value of
// clusterIP.
func (f *finder) follow(path string) {
	for _, element := range fieldElements.FindAllString(path, -1) {
		if !f.enter(element) && (element != "clusterIPs" || !f.enter("clusterIP")) {
			return
		}
	}
}

// enter goes to a field of a mapping, or to an element of a list, whose path is
// its index in brackets. The key of a map can be in brackets, too. Of duplicate
// keys, it is the last one.
func (f *finder) enter(element string) bool {
	n := f.node
	if n.Alias != nil {
		n = n.Alias
	}
	name, bracket := strings.CutPrefix(strings.TrimSuffix(element, "]"), "[")
	switch n.Kind {
	case goyaml.MappingNode:
		for i := len(n.Content) - 2; i >= 0; i -= 2 {
			if n.Content[i].Value == name {
				f.set(n.Content[i], n.Content[i+1], element, bracket)
				return true
			}
		}
	case goyaml.SequenceNode:
		if i, err := strconv.Atoi(name); err == nil && bracket && i >= 0 && i < len(n.Content) {
			f.set(n.Content[i], n.Content[i], element, bracket)
			return true
		}
	}
	return false
}

func (f *finder) set(at, value *goyaml.Node, element string, bracket bool) {
	f.at, f.node = at, value
	if f.path != "" && !bracket {
		element = "." + element
	}
	f.path += element
}

// followType goes to the first field with a path that has a JSON type, and a
// value unless it is "". It returns the path with the indexes of elements.
func (f *finder) followType(path, jsonType, value string) string {
	elements := fieldElements.FindAllString(path, -1)
	found := f.findFirst(elements, func(n *goyaml.Node) bool {
		return jsonTypeOf(n) == jsonType && (value == "" || value == n.Value)
	})
	if found == nil { // such as n, a bool of YAML 1.1, but a string of 1.2
		found = f.findFirst(elements, func(*goyaml.Node) bool { return true })
	}
	if found == nil {
		return path
	}
	*f = *found
	return f.path
}

// findFirst returns the first value that matches, with a path that has no
// elements of lists, nil if there is none.
func (f finder) findFirst(path []string, matches func(*goyaml.Node) bool) *finder {
	n := f.node
	if n.Alias != nil {
		n = n.Alias
	}
	if len(path) == 0 && matches(n) {
		return &f
	}
	if n.Kind == goyaml.SequenceNode {
		for i := range n.Content {
			element := f
			element.enter(fmt.Sprintf("[%d]", i))
			if found := element.findFirst(path, matches); found != nil {
				return found
			}
		}
	}
	if len(path) > 0 && f.enter(path[0]) {
		return f.findFirst(path[1:], matches)
	}
	return nil
}

// jsonTypeOf returns the type of a value in the errors of package json.
func jsonTypeOf(n *goyaml.Node) string {
	switch n.Kind {
	case goyaml.MappingNode:
		return "object"
	case goyaml.SequenceNode:
		return "array"
	}
	switch n.ShortTag() {
	case "!!bool":
		return "bool"
	case "!!int", "!!float":
		return "number"
	}
	return "string"
}
