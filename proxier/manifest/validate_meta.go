package manifest

import (
	"cmp"
	"slices"

	metaapi "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateMeta checks the metadata that all kinds share; validName is the kind's rule for names.
func validateMeta(meta *metav1.ObjectMeta, kind objectKind, validName metaapi.ValidateNameFunc) field.ErrorList {
	path := field.NewPath("metadata")
	if meta.Name == "" {
		// generateName needs somebody who makes up a name.
		return field.ErrorList{field.Required(path.Child("name"), "")}
	}
	return inOrder(metaapi.ValidateObjectMeta(meta, kind.namespaced(), validName, path))
}

// validateSelector checks a Service's selector.
func validateSelector(selector map[string]string, path *field.Path) field.ErrorList {
	return inOrder(metavalidation.ValidateLabels(selector, path))
}

// inOrder sorts errors that come from walking a map, so that the same object gives the same errors.
func inOrder(errs field.ErrorList) field.ErrorList {
	slices.SortStableFunc(errs, func(a, b *field.Error) int {
		return cmp.Compare(a.Error(), b.Error())
	})
	return errs
}

// invalid turns the messages of a check of a string into field errors.
func invalid(path *field.Path, value string, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, message := range messages {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}

// validatePort checks a port number.
func validatePort(path *field.Path, port int32) field.ErrorList {
	var errs field.ErrorList
	for _, message := range validation.IsValidPortNum(int(port)) {
		errs = append(errs, field.Invalid(path, port, message))
	}
	return errs
}

// validateEnum checks that a field holds one of the values that it can have.
func validateEnum[T ~string](path *field.Path, value T, supported ...T) field.ErrorList {
	if slices.Contains(supported, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, supported)}
}
