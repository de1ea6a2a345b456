package admission

import (
	"cmp"
	"slices"

	metaapi "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// scope is the scope of a kind.
type scope bool

const (
	clusterScope   scope = false
	namespaceScope scope = true
)

// defaultMeta sets the namespace. The API server ignores the namespace of
// cluster-scoped objects.
func defaultMeta(meta *metav1.ObjectMeta, scope scope) {
	if scope == clusterScope {
		meta.Namespace = ""
	} else {
		setDefault(&meta.Namespace, metav1.NamespaceDefault)
	}
}

// validateMeta checks the metadata of an object. validName checks its name.
func validateMeta(meta *metav1.ObjectMeta, scope scope, validName metaapi.ValidateNameFunc) field.ErrorList {
	path := field.NewPath("metadata")
	if meta.Name == "" {
		// Only an API server can turn a generateName into a name.
		return field.ErrorList{field.Required(path.Child("name"), "")}
	}
	return sorted(metaapi.ValidateObjectMeta(meta, bool(scope), validName, path))
}

// validateSelector checks a Service's selector.
func validateSelector(selector map[string]string, path *field.Path) field.ErrorList {
	return sorted(metavalidation.ValidateLabels(selector, path))
}

// sorted sorts errors of maps, which have no order.
func sorted(errs field.ErrorList) field.ErrorList {
	slices.SortStableFunc(errs, func(a, b *field.Error) int {
		return cmp.Compare(a.Error(), b.Error())
	})
	return errs
}
