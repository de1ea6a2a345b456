package manifest

import "fmt"

// place is the place of a definition or a problem in a file.
type place struct {
	file     string // name in the directory
	document int    // 1-based; 0: the file as a whole
	item     int    // 0-based index in the document's list, or noItem
}

// noItem is the item of an object that is not in a list.
const noItem = -1

// String returns "web.yaml: document 3" or "web.yaml: document 3: items[0]".
func (p place) String() string {
	text := p.file
	if p.document > 0 {
		text += fmt.Sprintf(": document %d", p.document)
	}
	if p.item != noItem {
		text += fmt.Sprintf(": items[%d]", p.item)
	}
	return text
}

// problem is a reason why a file or a definition is not active. It does not
// embed its place: klog prefers a String method to Error.
type problem struct {
	place   place
	subject string // the object, or the known part of its identity; may be empty
	err     error
}

// Error returns "web.yaml: document 3: Service default/web:
// spec.ports[0].port: Invalid …".
func (p problem) Error() string {
	if p.subject == "" {
		return fmt.Sprintf("%s: %v", p.place, p.err)
	}
	return fmt.Sprintf("%s: %s: %v", p.place, p.subject, p.err)
}

func (p problem) Unwrap() error { return p.err }

// warning is a property of a valid file that is logged but is not an error.
type warning struct {
	place
	text    string // the log message
	subject string // "Service default/web" or "apps/v1 Deployment web"
}
