package tour

import (
	"fmt"
	"slices"
	"strings"
)

// object is a set, a map or a chain in what nft lists.
type object struct {
	// kind is set, map or chain.
	kind, name string
	// body is what is in it, line by line, without its elements.
	body []string
	// elements are those of a set or a map.
	elements []string
}

// parseListing takes what `nft list table` prints apart.
func parseListing(listing string) []object {
	var (
		objects  []object
		current  *object
		elements *strings.Builder // of the current object, while they go on
	)
	for line := range strings.Lines(listing) {
		text := strings.TrimSpace(line)
		fields := strings.Fields(text)
		switch {
		case current == nil && len(fields) == 3 && slices.Contains([]string{"set", "map", "chain"}, fields[0]):
			current = &object{kind: fields[0], name: fields[1]}
		case current == nil:
			// the table itself, and empty lines
		case elements == nil && text == "}":
			objects, current = append(objects, *current), nil
		case elements == nil && strings.HasPrefix(text, "elements = {"):
			elements = &strings.Builder{}
			text = strings.TrimPrefix(text, "elements = {")
			fallthrough
		case elements != nil:
			list, last := strings.CutSuffix(text, "}")
			elements.WriteString(list + " ")
			if last {
				current.elements, elements = splitElements(elements.String()), nil
			}
		default:
			current.body = append(current.body, text)
		}
	}
	return objects
}

// splitElements splits at the commas that are not in comments.
func splitElements(list string) []string {
	var (
		parts  []string
		start  int
		quoted bool
	)
	for i, r := range list {
		switch {
		case r == '"':
			quoted = !quoted
		case r == ',' && !quoted:
			parts = append(parts, strings.TrimSpace(list[start:i]))
			start = i + 1
		}
	}
	return append(parts, strings.TrimSpace(list[start:]))
}

// canonical writes the objects in an order that does not depend on that of writing them.
func canonical(objects []object) string {
	var blocks []string
	for _, o := range objects {
		elements := slices.Sorted(slices.Values(o.elements))
		if strings.HasPrefix(o.name, affinitySets) { // packets fill them: they are not repaired
			elements = nil
		}
		lines := slices.Concat([]string{fmt.Sprintf("%s %s {", o.kind, o.name)}, o.body, elements, []string{"}"})
		blocks = append(blocks, strings.Join(lines, "\n")+"\n")
	}
	slices.Sort(blocks)
	return strings.Join(blocks, "")
}

// find returns the object of that name.
func find(objects []object, name string) (object, error) {
	for _, o := range objects {
		if o.name == name {
			return o, nil
		}
	}
	return object{}, fmt.Errorf("nft lists no %s", name)
}

// findFilled returns the first set whose name begins so and that has elements.
func findFilled(objects []object, prefix string) (object, error) {
	for _, o := range objects {
		if o.kind == "set" && strings.HasPrefix(o.name, prefix) && len(o.elements) > 0 {
			return o, nil
		}
	}
	return object{}, fmt.Errorf("nft lists no set %s with elements", prefix)
}

// rowsOf returns the elements whose key begins with the address, or whatever else the first field is.
func (o object) rowsOf(first string) []string {
	var rows []string
	for _, e := range o.elements {
		if strings.HasPrefix(e, first+" . ") {
			rows = append(rows, e)
		}
	}
	return rows
}
