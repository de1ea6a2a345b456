package admission

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// setDefault sets *value to def if it is empty.
func setDefault[T ~string](value *T, def T) {
	if *value == "" {
		*value = def
	}
}

// invalid returns a field error for each message of a string validation.
func invalid(path *field.Path, value string, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, message := range messages {
		errs = append(errs, field.Invalid(path, value, message))
	}
	return errs
}

// validateEnum checks that value is one of the supported values.
func validateEnum[T ~string](path *field.Path, value T, supported ...T) field.ErrorList {
	if slices.Contains(supported, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, supported)}
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
