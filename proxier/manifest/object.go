package manifest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// objectKind is a supported kind.
type objectKind string

const (
	kindNode          objectKind = "Node"
	kindServiceCIDR   objectKind = "ServiceCIDR"
	kindService       objectKind = "Service"
	kindEndpointSlice objectKind = "EndpointSlice"
)

// namespaced reports whether objects of the kind have a namespace.
func (k objectKind) namespaced() bool {
	return k == kindService || k == kindEndpointSlice
}

// objectKey identifies an object. Namespace is empty for cluster-scoped
// kinds.
type objectKey struct {
	Kind      objectKind
	Namespace string
	Name      string
}

// keyOf returns the key of an object of a supported kind.
func keyOf(value runtime.Object) objectKey {
	meta := value.(metav1.Object)
	return objectKey{
		Kind:      objectKind(value.GetObjectKind().GroupVersionKind().Kind),
		Namespace: meta.GetNamespace(),
		Name:      meta.GetName(),
	}
}

// String returns "Service default/web" or "Node worker".
func (k objectKey) String() string {
	if k.Namespace != "" {
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

// object is a valid object and the place of its definition.
type object struct {
	place
	key   objectKey
	value runtime.Object
}

// identity is the type and the name of an object that was not decoded. Every
// field may be missing.
type identity struct {
	metav1.TypeMeta
	Metadata struct{ Namespace, Name string }
}

// identify returns the identity of a JSON object, which may be invalid.
// implied is the type of the items of a typed list, or nil.
func identify(value []byte, implied *schema.GroupVersionKind) identity {
	var id identity
	// Invalid fields stay empty. Decoding the object has reported them.
	_ = json.Unmarshal(value, &id)
	if implied != nil && id.Kind == "" {
		id.Kind = implied.Kind
	}
	return id
}

// String returns "Service default/web", "Deployment web", "Service" or "", in
// one line.
func (id identity) String() string {
	id.Kind, id.Metadata.Name = oneLine(id.Kind), oneLine(id.Metadata.Name)
	id.Metadata.Namespace = oneLine(id.Metadata.Namespace)
	if id.Kind == "" || id.Metadata.Name == "" {
		return id.Kind
	}
	key := objectKey{Kind: objectKind(id.Kind), Namespace: id.Metadata.Namespace, Name: id.Metadata.Name}
	if key.Kind.namespaced() {
		key.Namespace = cmp.Or(key.Namespace, metav1.NamespaceDefault)
	}
	return key.String()
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
