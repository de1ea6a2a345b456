package manifest

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
)

// objectKind is one of the kinds of objects that are read.
type objectKind string

// The kinds that are read.
const (
	kindNode          objectKind = "Node"
	kindServiceCIDR   objectKind = "ServiceCIDR"
	kindService       objectKind = "Service"
	kindEndpointSlice objectKind = "EndpointSlice"
)

// namespaced tells whether objects of the kind live in a namespace.
func (k objectKind) namespaced() bool {
	return k == kindService || k == kindEndpointSlice
}

// objectKey names an object. Namespace is empty for kinds without one.
type objectKey struct {
	Kind      objectKind
	Namespace string
	Name      string
}

// String gives "Service default/web" or "Node worker".
func (k objectKey) String() string {
	if k.Kind.namespaced() {
		return fmt.Sprintf("%s %s/%s", k.Kind, k.Namespace, k.Name)
	}
	return fmt.Sprintf("%s %s", k.Kind, k.Name)
}

// compare orders keys by kind, namespace and name.
func (k objectKey) compare(other objectKey) int {
	return cmp.Or(
		cmp.Compare(k.Kind, other.Kind),
		cmp.Compare(k.Namespace, other.Namespace),
		cmp.Compare(k.Name, other.Name),
	)
}

// noItem is the item of an object that is not in a list.
const noItem = -1

// place is where in a file something stands.
type place struct {
	file     string // name in the directory
	document int    // 1-based; 0: the file as a whole
	item     int    // 0-based index in the document's list, or noItem
}

// String gives "web.yaml: document 3" or "web.yaml: document 3: items[0]".
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

// object is a valid object with its defaults, and where it is defined.
type object struct {
	place
	key   objectKey
	value runtime.Object
}

// problem is one reason why a file, or an object of it, is not in force. It does not embed its place: klog
// prefers a String method to Error.
type problem struct {
	place   place
	subject string // the object as far as it is known, may be empty
	err     error
}

// Error gives "web.yaml: document 3: Service default/web: spec.ports[0].port: Invalid value: ...".
func (p problem) Error() string {
	if p.subject == "" {
		return fmt.Sprintf("%s: %v", p.place, p.err)
	}
	return fmt.Sprintf("%s: %s: %v", p.place, p.subject, p.err)
}

func (p problem) Unwrap() error { return p.err }

// notice is something that is worth a line in the log and no error.
type notice struct {
	place
	text    string
	subject string // "Service default/web", or "apps/v1 Deployment default/web" for a kind that is not read
}
