package admission

import (
	"cmp"
	"slices"

	metaapi "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Scopes of kinds.
const clusterScope, namespaceScope = false, true

// meta sets the namespace of an object and checks its metadata. The API server
// ignores the namespace of cluster-scoped objects. validName checks the name.
func (c *checker) meta(meta *metav1.ObjectMeta, namespaced bool, validName metaapi.ValidateNameFunc) {
	if namespaced {
		meta.Namespace = cmp.Or(meta.Namespace, metav1.NamespaceDefault)
	} else {
		meta.Namespace = ""
	}
	path := field.NewPath("metadata")
	if meta.Name == "" {
		// Only an API server can turn a generateName into a name.
		c.add(field.Required(path.Child("name"), ""))
		return
	}
	errs := metaapi.ValidateObjectMeta(meta, namespaced, validName, path)
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return cmp.Compare(a.Error(), b.Error()) }) // of maps
	c.add(errs...)
}
