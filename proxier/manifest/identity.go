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
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
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
	switch namespace, name := id.Metadata.Namespace, id.Metadata.Name; {
	case id.Kind == "" || name == "":
		return id.Kind
	case objectKind(id.Kind).namespaced():
		namespace = cmp.Or(namespace, metav1.NamespaceDefault)
		return objectKey{Kind: objectKind(id.Kind), Namespace: namespace, Name: name}.String()
	case namespace != "":
		return id.Kind + " " + namespace + "/" + name
	default:
		return id.Kind + " " + name
	}
}

// full returns "apps/v1 Deployment web".
func (id identity) full() string {
	return id.APIVersion + " " + id.String()
}
