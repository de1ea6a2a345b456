package admission

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// validateEnum checks that value is one of the supported values, or absent.
func validateEnum[T ~string](path *field.Path, value T, supported ...T) field.ErrorList {
	if value == "" || slices.Contains(supported, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, supported)}
}

// validateOptionalEnum is validateEnum for an optional field.
func validateOptionalEnum[T ~string](path *field.Path, value *T, supported ...T) field.ErrorList {
	return validateEnum(path, ptr.Deref(value, ""), supported...)
}

// validatePort checks a port number.
func validatePort(path *field.Path, port int32) field.ErrorList {
	var errs field.ErrorList
	for _, message := range validation.IsValidPortNum(int(port)) {
		errs = append(errs, field.Invalid(path, port, message))
	}
	return errs
}

// validateUnique returns an error if seen has the value, and adds it to seen.
func validateUnique(seen sets.Set[string], path *field.Path, value string) field.ErrorList {
	if seen.Has(value) {
		return field.ErrorList{field.Duplicate(path, value)}
	}
	seen.Insert(value)
	return nil
}
