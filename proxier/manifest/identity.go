package manifest

import (
	"cmp"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

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

// String returns "Service default/web", "Deployment web", "Service" or "".
func (id identity) String() string {
	if id.Kind == "" || id.Metadata.Name == "" {
		return id.Kind
	}
	key := objectKey{Kind: objectKind(id.Kind), Namespace: id.Metadata.Namespace, Name: id.Metadata.Name}
	if key.Kind.namespaced() {
		key.Namespace = cmp.Or(key.Namespace, metav1.NamespaceDefault)
	}
	return key.String()
}
