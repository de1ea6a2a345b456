package admission

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checker collects the errors of an object. Its methods check fields.
type checker struct{ errs field.ErrorList }

func (c *checker) add(errs ...*field.Error) { c.errs = append(c.errs, errs...) }

// invalid adds an error for each message about a value.
func (c *checker) invalid(path *field.Path, value any, messages ...string) {
	for _, message := range messages {
		c.add(field.Invalid(path, value, message))
	}
}

// enum checks that value is one of the supported values, or absent.
func enum[T ~string](c *checker, path *field.Path, value T, supported ...T) {
	if value != "" && !slices.Contains(supported, value) {
		c.add(field.NotSupported(path, value, supported))
	}
}

// port checks a port number.
func (c *checker) port(path *field.Path, port int32) {
	c.invalid(path, port, validation.IsValidPortNum(int(port))...)
}

// unique adds an error if seen has the value, and adds the value to seen.
func (c *checker) unique(seen sets.Set[string], path *field.Path, value string) {
	if seen.Has(value) {
		c.add(field.Duplicate(path, value))
	}
	seen.Insert(value)
}
